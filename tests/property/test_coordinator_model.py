"""The coordinator against a plain model of it: any steps in any order, allowed or not, with any times."""

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coresched.batch.coordinator import Coordinator
from coresched.batch.records import TransitionError
from coresched.core.reference import ReferenceChainQueue

CHANGES = {  # step: from which states, to which
    "start_inference": ({"admitted"}, "inference"),
    "finish_inference": ({"inference"}, "admitted"),
    "cancel_inference": ({"inference"}, "admitted"),
    "request_environment": ({"admitted"}, "queued"),
    "finish_environment": ({"environment"}, "admitted"),
    "cancel_environment": ({"queued", "environment"}, "admitted"),
    "finish": ({"admitted"}, "finished"),
    "withdraw": ({"waiting", "admitted", "inference", "queued", "environment"}, "withdrawn"),
}
IN_SLOT = {"admitted", "inference", "queued", "environment"}


@dataclass
class Modelled:
    submitted: float
    state: str = "waiting"
    admitted: float | None = None
    ended: float | None = None
    since: float = 0.0  # when the present stage began
    turns: list[float] = field(default_factory=list)
    failed_turns: list[float] = field(default_factory=list)
    queued: list[float] = field(default_factory=list)
    jobs: list[float] = field(default_factory=list)
    stages: int = 0


class CoordinatorMachine(RuleBasedStateMachine):
    @initialize(
        samples=st.integers(1, 4),
        environments=st.none() | st.integers(1, 3),
        policy=st.sampled_from(["caas", "fcfs"]),
        band=st.sampled_from([0.5, 7.0, 1000.0]),
        bucket=st.sampled_from([0.25, 3.0]),
    )
    def begin(self, samples: int, environments: int | None, policy: Any, band: float, bucket: float) -> None:
        self.batch = Coordinator(
            samples, environments, environment_policy=policy, band_s=band, bucket_s=bucket
        )
        self.c_s = samples
        self.c_e = environments if environments is not None else 10**9
        self.caas = policy == "caas"
        self.samples: dict[str, Modelled] = {}
        self.queue = ReferenceChainQueue(band, bucket)
        self.now = 0.0
        self.begun = 0.0
        self.last: Any = None  # when the last step was taken

    def count(self, states: set[str]) -> int:
        return sum(sample.state in states for sample in self.samples.values())

    @rule(wait=st.floats(0, 40))
    def time_passes(self, wait: float) -> None:
        self.now += wait

    @rule()
    def submit(self) -> None:
        name = f"s{len(self.samples)}"
        if not self.samples:
            self.begun = self.now
        self.batch.submit(name, self.now)
        self.last = self.now
        self.samples[name] = Modelled(self.now)

    @precondition(lambda self: self.samples)
    @rule(data=st.data())
    def submit_again(self, data: st.DataObject) -> None:
        with pytest.raises(ValueError, match="submitted before"):
            self.batch.submit(data.draw(st.sampled_from(sorted(self.samples))), self.now)

    @rule()
    def admit(self) -> None:
        free = self.c_s - self.count(IN_SLOT)
        expected = [name for name, sample in self.samples.items() if sample.state == "waiting"][:free]
        assert self.batch.admit(self.now) == expected
        self.last = self.now
        for name in expected:
            self.samples[name].state = "admitted"
            self.samples[name].admitted = self.now

    @rule()
    def dispatch(self) -> None:
        free = self.c_e - self.count({"environment"})
        expected = [self.queue.pop() for _ in range(min(free, len(self.queue)))]
        assert self.batch.dispatch(self.now) == expected
        self.last = self.now
        for name in expected:
            sample = self.samples[name]
            sample.state = "environment"
            sample.queued.append(self.now - sample.since)
            sample.since = self.now

    @precondition(lambda self: self.samples)
    @rule(data=st.data(), step=st.sampled_from(sorted(CHANGES)))
    def step(self, data: st.DataObject, step: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.samples)))
        self.take(name, step)

    @precondition(lambda self: self.count({"admitted"}))
    @rule(data=st.data(), seconds=st.floats(0, 9), cut=st.booleans())
    def run_a_turn_and_ask(self, data: st.DataObject, seconds: float, cut: bool) -> None:
        """The common path, so that queues grow deep enough to be worth ordering."""
        ready = [name for name, sample in self.samples.items() if sample.state == "admitted"]
        name = data.draw(st.sampled_from(ready))
        self.take(name, "start_inference")
        self.now += seconds
        self.take(name, "cancel_inference" if cut else "finish_inference")
        self.take(name, "request_environment")

    def take(self, name: str, step: str) -> None:
        sample = self.samples[name]
        sources, target = CHANGES[step]
        if sample.state not in sources:
            with pytest.raises(TransitionError):
                getattr(self.batch, step)(name, self.now)
            return
        getattr(self.batch, step)(name, self.now)
        self.last = self.now
        spent = self.now - sample.since
        if sample.state == "inference":
            (sample.turns if step == "finish_inference" else sample.failed_turns).append(spent)
        elif sample.state == "queued":
            sample.queued.append(spent)
            assert self.queue.discard(name)
        elif sample.state == "environment":
            sample.jobs.append(spent)
            sample.stages += step == "finish_environment"
        sample.state = target
        sample.since = self.now
        if target in ("finished", "withdrawn"):
            sample.ended = self.now
        if target == "queued":
            mean = sum(sample.turns) / len(sample.turns) if sample.turns else 0.0
            key = (self.now - self.begun, len(sample.turns), mean) if self.caas else (0.0, 0, 0.0)
            self.queue.push(name, requested_at=key[0], turns=key[1], mean_inference_s=key[2])

    @precondition(lambda self: self.last is not None)
    @rule()
    def going_back_is_refused(self) -> None:
        with pytest.raises(ValueError, match="now must be"):
            self.batch.dispatch(math.nextafter(self.last, -math.inf))

    @invariant()
    def counts_agree(self) -> None:
        batch = self.batch
        assert batch.waiting == self.count({"waiting"})
        assert batch.admitted == self.count(IN_SLOT) <= self.c_s
        assert batch.environment_queued == self.count({"queued"}) == len(self.queue)
        assert batch.environment_running == self.count({"environment"}) <= self.c_e
        assert batch.finished == self.count({"finished"})
        assert batch.withdrawn == self.count({"withdrawn"})
        assert batch.samples() == list(self.samples)

    @invariant()
    def times_agree(self) -> None:
        for name, sample in self.samples.items():
            times = self.batch.times(name)
            assert times.state == self.batch.state(name) == sample.state
            assert (times.submitted_at, times.admitted_at) == (sample.submitted, sample.admitted)
            assert times.finished_at == sample.ended
            left = sample.admitted if sample.admitted is not None else sample.ended
            assert times.admission_wait_s == (0.0 if left is None else left - sample.submitted)
            assert (times.turns, times.environment_stages) == (len(sample.turns), sample.stages)
            assert times.inference_s == sum(sample.turns)
            assert times.failed_inference_s == sum(sample.failed_turns)
            assert times.environment_queue_s == sum(sample.queued)
            assert times.environment_s == sum(sample.jobs)

    def teardown(self) -> None:
        if not hasattr(self, "batch"):
            return
        for name in self.samples:
            if self.samples[name].state not in ("finished", "withdrawn"):
                self.take(name, "withdraw")
        assert self.batch.waiting == self.batch.admitted == 0
        assert self.batch.environment_queued == self.batch.environment_running == 0
        summary = self.batch.summary()
        assert summary.turns == sum(len(sample.turns) for sample in self.samples.values())
        assert summary.environment_s == sum(sum(sample.jobs) for sample in self.samples.values())


TestCoordinator = CoordinatorMachine.TestCase
TestCoordinator.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
