"""The compiled environment queue answers as its twin, whatever is pushed, popped and discarded."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coresched.core import ChainAdvancingQueue
from coresched.core.reference import ReferenceChainQueue

JOBS = st.integers(0, 40)
# Few values, so that bands, turns and buckets tie; and the extremes, where a double or an int could give way.
TIMES = st.one_of(
    st.integers(-4, 4).map(lambda band: band * 15.0), st.floats(allow_nan=False, allow_infinity=False)
)
TURNS = st.one_of(st.integers(-1, 3), st.sampled_from([2**63 - 1, 2**63]))
MEANS = st.one_of(st.sampled_from([0.0, 0.5, 1.0, 1.5, -0.5]), st.floats(0.0, 1e308))


def answer(call: Any, *arguments: Any, **named: Any) -> object:
    """What the call returns, or the type of what it raises."""
    try:
        return call(*arguments, **named)
    except Exception as error:
        return type(error)


class ChainQueues(RuleBasedStateMachine):
    @initialize(band_s=st.sampled_from([30.0, 0.1, 1e9, 1e-5]), bucket_s=st.sampled_from([1.0, 0.3, 1e-5]))
    def make(self, band_s: float, bucket_s: float) -> None:
        self.queue = ChainAdvancingQueue(band_s, bucket_s)
        self.twin = ReferenceChainQueue(band_s, bucket_s)

    @rule(entries=st.lists(st.tuples(JOBS, TIMES, TURNS, MEANS), min_size=1, max_size=12))
    def push(self, entries: list[tuple[int, float, int, float]]) -> None:
        for job, at, turns, mean in entries:
            key: dict[str, Any] = {"requested_at": at, "turns": turns, "mean_inference_s": mean}
            assert answer(self.queue.push, job, **key) == answer(self.twin.push, job, **key)

    @rule(times=st.integers(1, 5))
    def pop(self, times: int) -> None:
        for _ in range(times):
            assert answer(self.queue.pop) == answer(self.twin.pop)

    @rule(jobs=st.lists(JOBS, min_size=1, max_size=5))
    def discard(self, jobs: list[int]) -> None:
        for job in jobs:
            assert (job in self.queue) == (job in self.twin)
            assert self.queue.discard(job) == self.twin.discard(job)

    @invariant()
    def same(self) -> None:
        assert len(self.queue) == len(self.twin)
        assert answer(self.queue.peek) == answer(self.twin.peek)

    def teardown(self) -> None:
        while len(self.twin):
            assert self.queue.pop() == self.twin.pop()
        assert len(self.queue) == 0


TestChainQueues = ChainQueues.TestCase
TestChainQueues.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
