"""Facts applied to a ledger: in order, and refused with their sequence number where they do not fit."""

from pathlib import Path

import pytest

from coresched.errors import InputError
from coresched.service.batches.facts import AnyFact, WorkerRegistered, WorkerRemoved
from coresched.service.journal import Journal, recovery
from coresched.service.journal.recovery import Recovered, recover


class Workers:
    """The least of ledgers: registered workers, which can be removed once."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def apply(self, fact: AnyFact) -> None:
        if isinstance(fact, WorkerRegistered):
            self.names.add(fact.worker)
        elif isinstance(fact, WorkerRemoved):
            self.names.remove(fact.worker)


async def filled(path: Path, *facts: AnyFact) -> bytes:
    journal = Journal(str(path))
    journal.start(print)
    for fact in facts:
        journal.append(fact)
    await journal.close()
    return path.read_bytes()


async def test_facts_are_applied_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "REPORT_EVERY_S", 0.0)
    facts = [
        WorkerRegistered(at=5.0, worker="a", weight=1.0),
        WorkerRegistered(at=7.0, worker="b", weight=1.0),
        WorkerRemoved(at=6.5, worker="a"),
    ]
    await filled(tmp_path / "j", *facts)
    journal, workers = Journal(str(tmp_path / "j")), Workers()
    reported: list[int] = []
    assert recover(journal, workers.apply, report=reported.append) == Recovered(3, 7.0)
    journal.leave()
    assert workers.names == {"b"}
    assert reported == [1, 2, 3]


async def test_a_new_file_has_nothing_to_recover(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "j"))
    assert recover(journal, Workers().apply, report=print) == Recovered(0, 0.0)
    journal.leave()


async def test_a_fact_that_the_ledger_refuses_is_named_and_the_file_stays(tmp_path: Path) -> None:
    before = await filled(
        tmp_path / "j",
        WorkerRegistered(at=5.0, worker="a", weight=1.0),
        WorkerRemoved(at=6.0, worker="a"),
        WorkerRemoved(at=6.0, worker="a"),
    )
    with pytest.raises(InputError) as refused:
        recover(Journal(str(tmp_path / "j")), Workers().apply, report=print)
    assert str(refused.value) == (
        f"--journal {str(tmp_path / 'j')!r} is damaged: fact 3 (WorkerRemoved) does not follow from those "
        "before it, KeyError: 'a'; restore a copy of it or give another --journal FILE"
    )
    assert (tmp_path / "j").read_bytes() == before
    Journal(str(tmp_path / "j")).leave()  # its lock is gone
