"""How a run of a harness under the gate begins, fails and ends."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from functools import partial

import pytest
from coresched_harness.held import GateFailure, held
from coresched_harness.run import Labels, gated_run, open_gate, warn_below

from coresched.client.gate import Gate, sample_in_scope
from coresched.errors import InputError


@pytest.fixture
def gate() -> Iterator[Gate]:
    with Gate(sample_concurrency=2) as gate:
        yield gate


def test_what_a_body_raises_passes_and_its_sample_is_withdrawn(gate: Gate) -> None:
    with pytest.raises(KeyError), held(partial(gate.sample, "task-1")):
        raise KeyError
    assert gate.report().totals.withdrawn == 1


def run_task(gate: Gate) -> None:
    """As harnesses run theirs."""
    try:
        with held(partial(gate.sample, "task-1")) as sample:
            assert sample_in_scope() is sample
            gate.close()
            with held(sample.environment):
                pass
    except Exception:
        pytest.fail("was taken for a failure of the task")


def test_what_the_gate_raises_is_no_exception_of_the_harness(gate: Gate) -> None:
    with pytest.raises(GateFailure):
        run_task(gate)
    with pytest.raises(GateFailure):  # where the sample cannot even be made
        run_task(gate)


def test_labels_are_unique_per_attempt_also_among_threads() -> None:
    labels = Labels(shared=False)
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.extend(labels.of("task") for _ in range(50))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(["task", *(f"task#{number}" for number in range(2, 201))])


def test_labels_of_a_shared_batch_differ_between_processes() -> None:
    one, other = Labels(shared=True), Labels(shared=True)
    first = one.of("task")
    assert first.startswith("task@")
    assert len({first, one.of("task"), other.of("task")}) == 3


def test_without_variables_there_is_no_gate_and_a_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in os.environ if name.startswith("CORESCHED_")]:
        monkeypatch.delenv(name)
    assert open_gate("bfcl") is None
    assert capsys.readouterr().err.endswith("is not set; this is plain bfcl\n")


@pytest.mark.parametrize(("given", "warned"), [(1, True), (2, False), (9, False)])
def test_a_limit_below_the_sample_concurrency_is_warned_of(
    gate: Gate, capsys: pytest.CaptureFixture[str], given: int, warned: bool
) -> None:
    warn_below(gate, "--num-threads", given)
    assert ("warning: --num-threads 1 is below" in capsys.readouterr().err) is warned


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (InputError("no such place"), 2, "error: no such place"),
        (GateFailure("lost"), 1, "error: lost; go on"),
    ],
)
def test_a_run_that_fails_ends_with_one_line(
    gate: Gate, capsys: pytest.CaptureFixture[str], error: BaseException, status: int, line: str
) -> None:
    with pytest.raises(SystemExit) as ended, gated_run(gate, "go on"):
        raise error
    assert ended.value.code == status
    assert capsys.readouterr().err.splitlines()[-1] == f"coresched: {line}"


def test_an_interrupt_closes_the_gate_and_the_handler_before_is_back(
    gate: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), gated_run(gate, "go on"):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    assert "C_S=2 C_E=no cap: 0 samples finished" in capsys.readouterr().err
    with pytest.raises(GateFailure), held(partial(gate.sample, "task-1")):
        pass
