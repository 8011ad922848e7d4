"""The metrics of a service after a script of facts, whose times are given: every value exactly."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grpc import StatusCode

from coresched.service.batches import facts
from coresched.service.batches.ledger import REMEMBERED_BATCHES
from coresched.service.journal import Journal
from coresched.service.prefix.calls import PrefixCalls
from coresched.service.refusal import RefusedError
from coresched.service.refusals import refusals
from coresched.service.state import ServiceState
from coresched.service.table import UNARY, RoutingTable
from coresched.service.telemetry import batch_families, collector
from coresched.service.telemetry.collector import ServiceCollector
from coresched.v1 import prefix_pb2 as prefix_pb


class Clock:
    """What the routing table measures with."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


class Service:
    """A service without network, and its metrics by name and label values."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.table = RoutingTable({"w0": 1.0, "w1": 1.0}, clock=self.clock)
        self.state = ServiceState(self.table)
        self.collector = ServiceCollector(self.state)
        self._record = self.state.batches.parts.recorder.record

    def happen(self, *happened: tuple[float, type[facts.Fact], dict[str, Any]]) -> None:
        for at, kind, values in happened:
            self._record(kind(at=at, key=1, **values))

    def open(self, key: int = 1, name: str = "b", at: float = 100.0, residents: int | None = None) -> None:
        self._record(
            facts.BatchOpened(
                at=at,
                key=key,
                tenant="t",
                batch=name,
                sample_concurrency=2,
                environment_concurrency=1,
                policy="caas",
                band_s=30.0,
                bucket_s=1.0,
                resident_concurrency=residents,
            )
        )
        self._record(facts.SessionOpened(at=at, key=key, session=f"s{key}", grace_s=30.0))

    def values(self, name: str) -> dict[tuple[str, ...], float]:
        return dict(self._values(name))

    def value(self, name: str) -> float:
        return self.values(name)[()]

    def _values(self, name: str) -> Iterator[tuple[tuple[str, ...], float]]:
        for family in self.collector.collect():
            for sample in family.samples:
                if sample.name == name:
                    yield tuple(sample.labels.values()), sample.value


CLAIM = facts.SampleClaimed
TURN, TURNED = facts.TurnStarted, facts.TurnFinished
QUEUE, ENDED = facts.EnvironmentRequested, facts.EnvironmentEnded


async def test_a_scripted_batch_is_counted_exactly() -> None:
    service = Service()
    service.open()
    service.happen(
        (100.0, facts.SamplesSubmitted, {"session": "s1", "samples": ["a", "b", "c", "d", "e"]}),
        (101.0, CLAIM, {"session": "s1", "sample": "a"}),
        (101.0, CLAIM, {"session": "s1", "sample": "b"}),
        (102.0, CLAIM, {"session": "s1", "sample": "c"}),
        (102.0, CLAIM, {"session": "s1", "sample": "d"}),
        (103.0, TURN, {"sample": "a", "worker": ""}),
        (104.0, TURN, {"sample": "b", "worker": ""}),
        (105.0, TURNED, {"sample": "a", "failed": False}),
        (105.0, QUEUE, {"sample": "a", "since": 105.0}),  # granted at once
        (106.0, TURNED, {"sample": "b", "failed": True}),
        (106.0, TURN, {"sample": "b", "worker": ""}),
        (107.0, TURNED, {"sample": "b", "failed": False}),
        (107.0, QUEUE, {"sample": "b", "since": 107.0}),
        (110.0, ENDED, {"sample": "a", "how": "completed"}),  # grants it to b, which waited for 3 s
        (111.0, facts.SampleEnded, {"sample": "a", "withdrawn": False}),  # admits c, which waited for 9 s
        (112.0, TURN, {"sample": "c", "worker": ""}),
    )
    of = ("t", "b")
    assert service.values("coresched_batch_samples") == {
        (*of, "open"): 1,
        (*of, "waiting"): 1,
        (*of, "admitted"): 0,
        (*of, "inference"): 1,
        (*of, "queued"): 0,
        (*of, "environment"): 1,
        (*of, "resident_queued"): 0,
        (*of, "finished"): 1,
        (*of, "withdrawn"): 0,
    }
    expected = {
        "coresched_batch_sessions": 1,
        "coresched_batch_sample_slots": 2,
        "coresched_batch_environment_slots": 1,
        "coresched_batch_turns_total": 2,
        "coresched_batch_environment_stages_total": 1,
        "coresched_batch_readmissions_total": 0,
        "coresched_batch_makespan_seconds": 10,
    }
    assert {name: service.values(name) for name in expected} == {
        name: {of: value} for name, value in expected.items()
    }
    assert service.values("coresched_batch_seconds_total") == {
        (*of, "admission_wait"): 9,
        (*of, "inference"): 3,
        (*of, "failed_inference"): 2,
        (*of, "environment_queue"): 3,
        (*of, "environment"): 5,
        (*of, "resident_wait"): 0,
        (*of, "resident"): 0,
    }
    depths = service.values("coresched_batch_admitted_by_turns")
    assert {turns[-1]: count for turns, count in depths.items() if count} == {"0": 1, "1": 1}
    assert service.values("coresched_turns_total") == {("completed",): 2, ("failed",): 1, ("lost",): 0}
    assert service.value("coresched_admission_wait_seconds_count") == 3
    assert service.value("coresched_admission_wait_seconds_sum") == 9
    assert service.value("coresched_environment_wait_seconds_sum") == 3
    assert service.value("coresched_turn_seconds_sum") == 3
    assert service.values("coresched_turn_seconds_bucket")["1.0",] == 1
    assert service.values("coresched_turn_seconds_bucket")["+Inf",] == 2
    assert service.value("coresched_environment_stage_seconds_sum") == 5
    waits = service.values("coresched_environment_wait_by_turns_seconds_sum")
    assert {turns: seconds for turns, seconds in waits.items() if seconds} == {("1",): 3}
    assert service.values("coresched_environment_wait_by_turns_seconds_count")["1",] == 2

    service.happen((113.0, facts.SessionEnded, {"session": "s1", "left": False}))
    assert service.values("coresched_turns_total")["lost",] == 1
    assert service.values("coresched_sessions_ended_total")["expired",] == 1
    assert not any(service.values("coresched_batch_admitted_by_turns").values())
    states = service.values("coresched_batch_samples")
    assert (states[(*of, "open")], states[(*of, "inference")]) == (4, 0)


async def test_resident_slots_are_counted() -> None:
    service = Service()
    service.open(residents=1)
    ask, ended = facts.ResidentRequested, facts.ResidentEnded
    service.happen(
        (100.0, facts.SamplesSubmitted, {"session": "s1", "samples": ["a", "b"]}),
        (100.0, CLAIM, {"session": "s1", "sample": "a"}),
        (100.0, CLAIM, {"session": "s1", "sample": "b"}),
        (101.0, ask, {"sample": "a", "since": 101.0}),  # granted at once
        (102.0, ask, {"sample": "b", "since": 102.0}),
    )
    of = ("t", "b")

    def counted() -> tuple[float, ...]:
        states = service.values("coresched_batch_samples")
        names = ("coresched_batch_resident_slots", "coresched_batch_residents")
        slots, held = (service.values(name)[of] for name in names)
        return slots, held, states[(*of, "admitted")], states[(*of, "resident_queued")]

    assert counted() == (1, 1, 1, 1)
    service.happen((108.0, ended, {"sample": "a", "how": "completed"}))  # grants it to b
    assert counted() == (1, 1, 2, 0)
    service.happen(
        (109.0, ask, {"sample": "a", "since": 109.0}),
        (110.0, ended, {"sample": "a", "how": "dropped"}),
        (111.0, ended, {"sample": "b", "how": "failed"}),
        (112.0, ask, {"sample": "a", "since": 112.0}),
        (114.0, facts.SampleEnded, {"sample": "a", "withdrawn": False}),
    )
    assert counted() == (1, 0, 1, 0)
    spent = service.values("coresched_batch_seconds_total")
    assert (spent[(*of, "resident_wait")], spent[(*of, "resident")]) == (6 + 1, 7 + 3 + 2)
    ends = service.values("coresched_residents_total")
    assert ends == {("completed",): 1, ("failed",): 1, ("dropped",): 1}
    assert service.value("coresched_resident_wait_seconds_count") == 3
    assert service.value("coresched_resident_wait_seconds_sum") == 6
    assert service.value("coresched_resident_seconds_sum") == 7


async def test_without_a_cap_there_are_no_resident_slots_to_count() -> None:
    service = Service()
    service.open()
    assert service.values("coresched_batch_resident_slots") == {}


async def test_an_admission_that_is_told_again_is_counted_once() -> None:
    service = Service()
    service.open()
    service.happen(
        (100.0, facts.SamplesSubmitted, {"session": "s1", "samples": ["a"]}),
        (101.0, CLAIM, {"session": "s1", "sample": "a", "request_id": "one"}),
        (102.0, CLAIM, {"session": "s1", "sample": "a", "request_id": "two"}),
    )
    assert service.value("coresched_admission_wait_seconds_count") == 1


async def test_the_oldest_wait_and_how_stages_and_sessions_end() -> None:
    service = Service()
    service.open()
    now = service.state.batches.parts.clock.now()
    names = [f"sample {number}" for number in range(2)]
    service.happen(
        (now - 60, facts.SamplesSubmitted, {"session": "s1", "samples": names}),
        *((now - 50, CLAIM, {"session": "s1", "sample": name}) for name in names),
        *((now - 40, QUEUE, {"sample": name, "since": now - 40}) for name in names),
    )
    assert 40 <= service.values("coresched_batch_environment_oldest_wait_seconds")["t", "b"] < 60
    service.happen(
        (now, ENDED, {"sample": names[0], "how": "expired"}),
        (now, ENDED, {"sample": names[0], "how": "completed"}),  # told that it had expired
        (now, ENDED, {"sample": names[1], "how": "failed"}),
        (now, QUEUE, {"sample": names[1], "since": now}),
        (now, QUEUE, {"sample": names[0], "since": now}),
        (now, ENDED, {"sample": names[0], "how": "dropped"}),
    )
    ended = service.values("coresched_environment_stages_total")
    assert ended == {("completed",): 0, ("failed",): 1, ("expired",): 1, ("dropped",): 1}
    service.happen((now + 1, facts.SessionOpened, {"session": "another", "grace_s": 30.0}))
    service.happen((now + 1, facts.SessionEnded, {"session": "another", "left": True}))
    service.happen((now + 2, facts.BatchClosed, {}))
    assert service.values("coresched_sessions_ended_total") == {("left",): 1, ("expired",): 0, ("closed",): 1}
    assert service.values("coresched_batches") == {("open",): 0, ("closed",): 1}


async def test_the_router_and_the_imbalance() -> None:
    service = Service()
    router = service.table
    home = router.route("k", (), owner=UNARY, request_id="").worker
    assert router.route("k", (), owner=UNARY, request_id="").worker == home
    other = "w1" if home == "w0" else "w0"
    service.clock.now = 52.0  # d was 1
    assert router.route("k", (), owner=UNARY, request_id="").worker == other  # over the bound: it spills
    service.clock.now = 55.0  # d was 1/3
    router.release("k", home, owner=UNARY)
    service.clock.now = 58.0  # d was 0
    assert router.route("k", [home], owner=UNARY, request_id="").worker == other
    service.clock.now = 61.0  # d was 1/3
    assert service.values("coresched_worker_in_flight") == {(home,): 1, (other,): 2}
    assert service.values("coresched_worker_routed_total") == {(home,): 2, (other,): 2}
    assert service.values("coresched_worker_spilled_total") == {(home,): 2, (other,): 0}
    assert service.value("coresched_request_imbalance") == pytest.approx(1 / 3)
    assert service.value("coresched_request_imbalance_seconds_total") == pytest.approx(4)
    assert service.value("coresched_request_busy_seconds_total") == 11
    assert service.value("coresched_route_decision_seconds_count") == 4
    router.drain(other)  # one routable worker is left
    assert service.values("coresched_worker_state")[other, "draining"] == 1
    service.clock.now = 70.0
    assert service.value("coresched_request_busy_seconds_total") == 11
    assert service.values("coresched_workers") == {("routable",): 1, ("draining",): 1, ("removed",): 0}
    router.register(other, None)
    service.clock.now = 71.0  # with what is in flight there: 1 and 2 again
    assert service.value("coresched_request_busy_seconds_total") == 12


async def test_the_waiting_queues() -> None:
    service = Service()
    calls = PrefixCalls(service.state.queues)
    ids = iter(range(100))

    def order() -> prefix_pb.OrderResponse:
        return calls.order(prefix_pb.OrderRequest(request_id=str(next(ids)), queue="q"))

    def push(**labels: str | None) -> None:
        requests = [prefix_pb.QueuedRequest(name=name, label=label) for name, label in labels.items()]
        calls.push(prefix_pb.PushRequest(request_id=str(next(ids)), queue="q", requests=requests))

    calls.open_queue(prefix_pb.OpenQueueRequest(request_id="open", queue="q", label_capacity=4))
    push(r1="k", r2=None)
    order()
    calls.admitted(prefix_pb.AdmittedRequest(request_id="admit", queue="q", names=["r1", "r2"]))
    push(r3="k", r4="other")
    assert order().unasked == ["r3"]
    hits = [prefix_pb.Hit(name="r3", tokens=7)]
    calls.set_hits(prefix_pb.SetHitsRequest(request_id="hits", queue="q", hits=hits))
    order()
    calls.admitted(prefix_pb.AdmittedRequest(request_id="again", queue="q", names=["r3"]))
    assert service.value("coresched_prefix_orders_total") == 3
    assert service.value("coresched_prefix_passes_total") == 2
    assert service.value("coresched_prefix_questions_total") == 1
    assert service.values("coresched_prefix_admitted_total") == {("hit",): 1, ("miss",): 1, ("none",): 1}
    assert (service.value("coresched_prefix_queues"), service.value("coresched_prefix_waiting")) == (1, 1)


async def test_series_are_bounded_and_each_name_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service()
    monkeypatch.setattr(batch_families, "MOST_BATCHES", 3)
    monkeypatch.setattr(collector, "MOST_WORKERS", 1)
    for key in range(1, 6):
        service.open(key, "same" if key < 3 else f"b{key}")
        if key == 1:
            service.happen((100.0, facts.BatchClosed, {}))
    assert set(service.values("coresched_batch_sessions")) == {("t", "b5"), ("t", "b4"), ("t", "b3")}
    assert service.values("coresched_batches") == {("open",): 4, ("closed",): 0}
    assert list(service.values("coresched_worker_in_flight")) == [("w0",)]
    monkeypatch.setattr(batch_families, "MOST_BATCHES", 10)
    assert len(service.values("coresched_batch_sessions")) == 4


async def test_closed_batches_are_shown_until_they_are_forgotten() -> None:
    service = Service()
    for key in range(1, REMEMBERED_BATCHES + 3):
        service.open(key, f"b{key}")
        service._record(facts.BatchClosed(at=101.0, key=key))
    assert service.values("coresched_batches") == {("open",): 0, ("closed",): REMEMBERED_BATCHES}
    assert service.values("coresched_batch_elapsed_seconds")["t", "b3"] == 1


async def test_refusals_by_call_and_code() -> None:
    service = Service()
    before = service.values("coresched_refused_calls_total").get(("Tested", "NOT_FOUND"), 0)
    refusals.note("Tested", RefusedError(StatusCode.NOT_FOUND, "worker", "worker must be known"))
    assert service.values("coresched_refused_calls_total")["Tested", "NOT_FOUND"] == before + 1


async def test_the_page_lists_the_metrics_there_are(tmp_path: Path) -> None:
    service = Service()
    journal = Journal(str(tmp_path / "journal"))
    service.state.journal = journal
    there = set()
    for family in service.collector.collect():
        if family.name.startswith("coresched_"):
            there.add(family.name + "_total" * (family.type == "counter"))
    journal.leave()
    page = (Path(__file__).parents[3] / "docs" / "observability.md").read_text()
    rows = [line for line in page.splitlines() if re.match(r"\| `coresched_(?!gateway_)", line)]
    assert set(re.findall(r"coresched_\w+", "\n".join(row.split("|")[1] for row in rows))) == there
