"""Lists, reports and the stream of progress."""

import asyncio
import math

import pytest
from batching import Bench, new_id, settled, ticks
from grpc import StatusCode

from coresched.service.batches.limits import Limits
from coresched.v1 import batches_pb2 as pb


def test_open_batches_are_listed_in_order_of_opening() -> None:
    bench = Bench()
    for name in ("b", "a", "c"):
        bench.open(name)
    bench.close("a")
    listed = bench.service.reads.list_batches(pb.ListBatchesRequest()).batches
    assert [progress.batch for progress in listed] == ["b", "c"]


async def test_a_report_is_read_page_by_page() -> None:
    bench = Bench()
    session = bench.open()
    names = [f"s{n}" for n in range(2500)]
    for first in range(0, 2500, 1000):
        bench.submit(session, *names[first : first + 1000])
    reads = bench.service.reads
    found, after = [], ""
    while True:
        page = reads.get_report(pb.GetReportRequest(batch="b", after=after))
        found += [sample.sample for sample in page.samples]
        if not page.more:
            break
        after = found[-1]
    assert found == names
    page = reads.get_report(pb.GetReportRequest(batch="b", after="s2497", limit=2))
    assert ([sample.sample for sample in page.samples], page.more) == (["s2498", "s2499"], False)
    assert reads.get_report(pb.GetReportRequest(batch="b", after="s2499")).samples == []
    for limit in (-1, 1001):
        with bench.refused(StatusCode.INVALID_ARGUMENT, "limit", "from 1 to 1000"):
            reads.get_report(pb.GetReportRequest(batch="b", limit=limit))
    with bench.refused(StatusCode.NOT_FOUND, "after", "after must name a sample of the batch, got 'z'"):
        reads.get_report(pb.GetReportRequest(batch="b", after="z"))
    with bench.refused(StatusCode.INVALID_ARGUMENT, "batch", "must not be empty"):
        reads.get_report(pb.GetReportRequest())


async def test_a_closed_batch_reports_what_was_never_claimed_as_withdrawn_then() -> None:
    bench = Bench()
    session = bench.open(c_s=1)
    bench.submit(session, "a", "b")
    bench.clock.moment += 3.0
    await bench.admit(session, "a")
    bench.finish(session, "a")
    progress = bench.close()
    bench.clock.moment += 9.0
    report = bench.report()
    assert (bench.state("a"), bench.state("b")) == ("finished", "withdrawn")
    assert (report["a"].ended_at_s, report["b"].ended_at_s) == (3.0, 3.0)
    assert not report["b"].HasField("admitted_at_s")
    assert (progress.finished, progress.withdrawn, progress.open, progress.elapsed_s) == (1, 1, 0, 3.0)
    assert progress.makespan_s == 0.0


class Reader:
    """Follows a batch; takes each message when it is let."""

    def __init__(self, bench: Bench, interval_s: float | None = 0.1, batch: str = "b") -> None:
        self.messages: list[pb.BatchProgress] = []
        self.free = asyncio.Event()
        self.free.set()
        call = pb.WatchProgressRequest(batch=batch, interval_s=interval_s)
        self.task = asyncio.ensure_future(bench.service.reads.watch_progress(call, self.send))

    async def send(self, message: pb.WatchProgressResponse) -> None:
        self.messages.append(message.progress)
        await self.free.wait()


async def test_progress_is_sent_at_once_and_when_it_changed_until_the_batch_is_closed() -> None:
    bench = Bench()
    session = bench.open()
    reader = Reader(bench)
    await ticks()
    assert [message.samples for message in reader.messages] == [0]
    for n in range(50):
        bench.submit(session, f"s{n}")
    await ticks()
    assert len(reader.messages) == 1  # the interval has not passed
    while len(reader.messages) == 1:
        await asyncio.sleep(0.01)
    assert reader.messages[1].samples == 50
    bench.close()
    await asyncio.wait_for(reader.task, 20)
    assert [message.closed for message in reader.messages] == [False, False, True]


async def test_a_slow_reader_holds_nothing_up_and_gets_the_last_state() -> None:
    bench = Bench()
    session = bench.open()
    slow = Reader(bench)
    slow.free.clear()
    await ticks()
    for n in range(20):
        bench.submit(session, f"s{n}")
        await ticks()
    bench.close()
    await ticks()
    assert len(slow.messages) == 1
    slow.free.set()
    await asyncio.wait_for(slow.task, 20)
    assert [(message.closed, message.samples) for message in slow.messages] == [(False, 0), (True, 20)]


async def test_a_closed_batch_is_told_once_and_an_unknown_one_not() -> None:
    bench = Bench()
    bench.open()
    bench.close()
    reader = Reader(bench)
    await settled(reader.task)
    assert [message.closed for message in reader.messages] == [True]
    with bench.refused(StatusCode.NOT_FOUND, "batch", "batch must be known"):
        await settled(Reader(bench, batch="c").task)


@pytest.mark.parametrize("interval_s", [0.0, 0.09, 3600.5, math.nan])
async def test_an_interval_is_a_number_of_seconds(interval_s: float) -> None:
    bench = Bench()
    bench.open()
    with bench.refused(StatusCode.INVALID_ARGUMENT, "interval_s", "from 0.1 to 3600 seconds"):
        await settled(Reader(bench, interval_s).task)


async def test_readers_count_as_waiting_and_end_with_the_service() -> None:
    bench = Bench(limits=Limits(waiters=1))
    session = bench.open()
    reader = Reader(bench, None)
    await ticks()
    with bench.refused(StatusCode.RESOURCE_EXHAUSTED, "", "1 calls wait already"):
        await settled(Reader(bench).task)
    reader.task.cancel()
    await ticks()
    assert bench.service.parts.waits.blocked == 0
    pausing = Reader(bench, 3600.0)
    await ticks()
    bench.submit(session, new_id())
    bench.service.stop_waiting()
    with bench.refused(StatusCode.UNAVAILABLE, "", "stopping; send the call again"):
        await settled(pausing.task)
    assert bench.service.reads._watchers == {}
