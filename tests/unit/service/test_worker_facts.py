"""Workers over restarts: what calls changed comes back, with the answers, and --worker has the last word."""

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path

import grpc
import pytest

from coresched.errors import InputError
from coresched.service.answers import AnswerMemory
from coresched.service.batches.facts import AnyFact, WorkerRegistered
from coresched.service.batches.log import JournalError
from coresched.service.calls import RouterCalls
from coresched.service.clock import ServiceClock
from coresched.service.identity import Caller, act_as
from coresched.service.journal import Journal
from coresched.service.journal.recovery import recover
from coresched.service.refusal import RefusedError
from coresched.service.table import RoutingTable
from coresched.service.workers import RouterAnswers, WorkerRecord, replay_workers
from coresched.v1 import router_pb2 as pb


class Lives:
    """A router that is started again and again with one journal."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._journal: Journal | None = None

    async def start(self, given: Mapping[str, float]) -> RouterCalls:
        if self._journal is not None:
            await self._journal.close()
        self._journal = Journal(str(self._path))
        answers: RouterAnswers = AnswerMemory()
        self.table = RoutingTable(given, virtual_nodes=16)
        recovered = recover(self._journal, replay_workers(self.table, answers), report=print)
        self._journal.start(print)
        return RouterCalls(
            self.table, answers=answers, record=WorkerRecord(self._journal, ServiceClock(recovered.at))
        )

    def workers(self, calls: RouterCalls) -> dict[str, tuple[float, int]]:
        return {
            worker.worker: (worker.weight, worker.state)
            for worker in calls.list_workers(pb.ListWorkersRequest()).workers
        }


ROUTABLE, DRAINING = pb.WORKER_STATE_ROUTABLE, pb.WORKER_STATE_DRAINING


async def test_workers_of_calls_come_back_and_given_ones_are_as_given(tmp_path: Path) -> None:
    lives = Lives(tmp_path / "j")
    calls = await lives.start({"given": 2.0, "dropped": 1.0})
    register = pb.RegisterWorkerRequest
    for call in (
        register(request_id="1", worker="a", weight=3.0),
        register(request_id="2", worker="b"),
        register(request_id="3", worker="c"),
        register(request_id="4", worker="later", weight=9.0),
    ):
        calls.register_worker(call)
    calls.drain_worker(pb.DrainWorkerRequest(request_id="5", worker="b"))
    for number, worker in enumerate(("c", "given", "dropped"), 6):
        calls.remove_worker(pb.RemoveWorkerRequest(request_id=str(number), worker=worker))
    assert lives.workers(calls) == {"a": (3.0, ROUTABLE), "b": (1.0, DRAINING), "later": (9.0, ROUTABLE)}

    calls = await lives.start({"given": 2.0, "later": 1.0})
    assert lives.workers(calls) == {
        "given": (2.0, ROUTABLE),
        "later": (1.0, ROUTABLE),
        "a": (3.0, ROUTABLE),
        "b": (1.0, DRAINING),
    }
    calls.register_worker(register(request_id="9", worker="b"))

    calls = await lives.start({})
    assert lives.workers(calls) == {"a": (3.0, ROUTABLE), "b": (1.0, ROUTABLE), "later": (9.0, ROUTABLE)}


async def test_a_call_sent_again_after_a_restart_gets_its_answer_in_its_tenant_only(tmp_path: Path) -> None:
    lives = Lives(tmp_path / "j")
    calls = await lives.start({})
    act_as(Caller("one", True))
    registering = pb.RegisterWorkerRequest(request_id="1", worker="a")
    removing = pb.RemoveWorkerRequest(request_id="2", worker="a")
    calls.register_worker(registering)
    for n in range(3):
        calls.route(pb.RouteRequest(request_id=f"r{n}", label="k"))
    assert calls.remove_worker(removing).in_flight == 3
    calls = await lives.start({})
    calls.register_worker(registering)
    assert calls.remove_worker(removing).in_flight == 3
    assert lives.workers(calls) == {}
    with pytest.raises(RefusedError, match="request_id must be new"):
        calls.register_worker(pb.RegisterWorkerRequest(request_id="1", worker="b"))
    act_as(Caller("two", True))
    with pytest.raises(RefusedError) as refused:
        calls.remove_worker(removing)
    assert refused.value.code is grpc.StatusCode.NOT_FOUND


async def test_a_worker_there_is_no_room_for_is_refused_before_anything_starts(tmp_path: Path) -> None:
    lives = Lives(tmp_path / "j")
    calls = await lives.start({})
    calls.register_worker(pb.RegisterWorkerRequest(request_id="1", worker="a", weight=1000.0))
    await (await lives.start({}))._record.committed()
    assert lives._journal is not None
    await lives._journal.close()
    before = (tmp_path / "j").read_bytes()
    table = RoutingTable({}, virtual_nodes=65536)
    with pytest.raises(InputError, match=r"^--journal has a worker .* weight must be at most 16 with 65536"):
        recover(Journal(str(tmp_path / "j")), replay_workers(table, AnswerMemory()), report=print)
    assert (tmp_path / "j").read_bytes() == before


class SlowLog:
    """Is durable when told, or says that it cannot be."""

    def __init__(self) -> None:
        self.facts: list[AnyFact] = []
        self.written = asyncio.Event()
        self.fails = False

    def append(self, fact: AnyFact) -> int:
        self.facts.append(fact)
        return len(self.facts)

    async def committed(self, sequence: int) -> None:
        assert sequence <= len(self.facts)
        if self.facts:
            await self.written.wait()
        if self.fails:
            raise JournalError("full")

    def forget(self, keys: Collection[int]) -> None:
        raise AssertionError


async def test_also_the_answer_to_a_retry_waits_until_it_is_recorded() -> None:
    log = SlowLog()
    calls = RouterCalls(RoutingTable({}), record=WorkerRecord(log))
    await calls.recorded()
    registering = pb.RegisterWorkerRequest(request_id="1", worker="a")
    for _ in range(2):
        calls.register_worker(registering)
        waiting = asyncio.create_task(calls.recorded())
        await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()
    (fact,) = log.facts
    assert isinstance(fact, WorkerRegistered)
    assert (fact.worker, fact.weight, fact.request_id, len(fact.digest)) == ("a", 1.0, "1", 32)
    log.written.set()
    await calls.recorded()
    log.fails = True
    with pytest.raises(RefusedError) as refused:
        await calls.recorded()
    assert refused.value.code is grpc.StatusCode.UNAVAILABLE
