"""A service that is killed again and again while clients work: nothing they were told is undone."""

import asyncio
import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from batch_clients import Client, Record, new_id
from google.protobuf.message import Message
from served import served

from coresched.v1 import batches_pb2 as pb
from coresched.v1.batches_pb2_grpc import BatchesStub

SAMPLES = [f"traj-{n}" for n in range(120)]


class Service:
    """`coresched serve` with a journal, started anew on the same address after each kill."""

    def __init__(self, stack: ExitStack, journal: Path) -> None:
        self._stack = stack
        self._options = ["--journal", str(journal), "--worker", "w0", "--worker", "w1=2"]
        self.address, self._process = stack.enter_context(served(*self._options))

    def restart(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(20)
        address, self._process = self._stack.enter_context(served(*self._options, listen=self.address))
        assert address == self.address

    def stop(self) -> int:
        self._process.terminate()
        return self._process.wait(20)


async def reports(stub: BatchesStub) -> dict[str, pb.SampleReport]:
    found: dict[str, pb.SampleReport] = {}
    after = ""
    while True:
        page = await stub.GetReport(
            pb.GetReportRequest(batch="b", after=after, limit=50), wait_for_ready=True
        )
        found.update({sample.sample: sample for sample in page.samples})
        if not page.more:
            return found
        after = page.samples[-1].sample


def comparable(answer: Message) -> bytes:
    """Without the batch's progress, which tells of the moment."""
    if isinstance(answer, pb.OpenBatchResponse):
        answer = pb.OpenBatchResponse(session=answer.session, opened=answer.opened, grace_s=answer.grace_s)
    return answer.SerializeToString(deterministic=True)


async def same_answers(client: Client, record: Record, sessions: set[str], chance: random.Random) -> None:
    """Calls of living sessions that were answered before, sent again, from another connection."""
    calls = [call for call in record.answered if getattr(call[1], "session", "") in sessions]
    calls = [call for call in calls if call[0] != "Heartbeat"]
    for name, request, answer in chance.sample(calls, min(len(calls), 40)):
        again = await client.call(name, request)
        assert comparable(again) == comparable(answer), (name, request)


async def killed_often(
    service: Service, client: Client, record: Record, sessions: set[str], chance: random.Random
) -> int:
    """Kill the service at random moments until nearly all samples are finished; how often."""
    kills = 0
    while len(record.finished) < len(SAMPLES) - 5:
        due = len(record.answered) + chance.randint(50, 250)
        while len(record.answered) < due and len(record.finished) < len(SAMPLES) - 5:
            await asyncio.sleep(0.001)
        told = set(record.finished)
        await asyncio.to_thread(service.restart)
        kills += 1
        found = await reports(client.stub)
        assert {name for name in told if found[name].state != pb.SAMPLE_STATE_FINISHED} == set()
        await same_answers(client, record, sessions, chance)
    return kills


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_that_clients_were_told_is_undone(seed: int, tmp_path: Path, stack: ExitStack) -> None:
    chance = random.Random(seed)
    record = Record(sample_concurrency=12, environment_concurrency=4)
    service = await asyncio.to_thread(Service, stack, tmp_path / "journal")
    lasting = [Client(service.address, "b", record, chance, grace_s=60) for _ in range(3)]
    leaving = Client(service.address, "b", record, chance, grace_s=3)
    watching = Client(service.address, "b", record, chance, grace_s=600)
    clients = [*lasting, leaving, watching]
    for client in clients:
        await client.join(SAMPLES)
    sessions = {client.session for client in lasting}
    gone = asyncio.Event()
    running = [asyncio.create_task(client.run(lanes=6)) for client in lasting]
    running.append(asyncio.create_task(leaving.run(lanes=3, stop=gone)))
    killing = asyncio.create_task(killed_often(service, watching, record, sessions, chance))
    while len(record.finished) < 20:
        await asyncio.sleep(0.01)
        for task in running:
            if task.done():
                task.result()
    gone.set()
    await asyncio.wait_for(asyncio.gather(*running), 120)
    kills = await asyncio.wait_for(killing, 60)

    found = await reports(watching.stub)
    assert list(found) == SAMPLES
    assert {sample.state for sample in found.values()} == {pb.SAMPLE_STATE_FINISHED}
    assert {name: sample.turns for name, sample in found.items()} == {n: record.turns[n] for n in SAMPLES}
    assert {name: sample.environment_stages for name, sample in found.items()} == {
        n: record.stages[n] for n in SAMPLES
    }
    left = pb.LeaveBatchRequest(request_id=new_id(), session=watching.session)
    progress = (await watching.call("LeaveBatch", left)).progress
    assert (progress.finished, progress.admitted, progress.environment_running) == (len(SAMPLES), 0, 0)
    for client in clients:
        await client.close()
    # The run put the service to the test.
    assert kills >= 3
    assert record.retries > 10
    assert record.most_admitted == record.sample_concurrency
    assert await asyncio.to_thread(service.stop) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]
