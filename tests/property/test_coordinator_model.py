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
    "withdraw": (
        {"waiting", "admitted", "inference", "queued", "environment", "resident_queued", "returned"},
        "withdrawn",
    ),
    "put_back": (
        {"waiting", "admitted", "inference", "queued", "environment", "resident_queued"},
        "returned",
    ),
}
RESIDENT_STEPS = ("request_resident", "finish_resident", "cancel_resident")
ARRIVAL_BAND_S = 1e-6  # under FCFS
IN_SLOT = {"admitted", "inference", "queued", "environment", "resident_queued"}


@dataclass
class Modelled:
    submitted: float
    state: str = "waiting"
    passed: bool = False  # whether the order went past its place, so that it goes first when it returns
    expected: float | None = None
    admissions: int = 0
    waited: float = 0.0
    admitted: float | None = None
    ended: float | None = None
    since: float = 0.0  # when the present stage began
    turns: list[float] = field(default_factory=list)
    failed_turns: list[float] = field(default_factory=list)
    queued: list[float] = field(default_factory=list)
    jobs: list[float] = field(default_factory=list)
    stages: int = 0
    resident_since: float | None = None  # when the slot was granted that is held now
    resident_waits: list[float] = field(default_factory=list)
    resident_times: list[float] = field(default_factory=list)


class CoordinatorMachine(RuleBasedStateMachine):
    @initialize(
        samples=st.integers(1, 4),
        environments=st.none() | st.integers(1, 3),
        residents=st.none() | st.integers(1, 3),
        policy=st.sampled_from(["caas", "fcfs"]),
        admission=st.sampled_from(["submission", "longest-expected-first"]),
        band=st.sampled_from([0.5, 7.0, 1000.0]),
        bucket=st.sampled_from([0.25, 3.0]),
    )
    def begin(
        self,
        samples: int,
        environments: int | None,
        residents: int | None,
        policy: Any,
        admission: Any,
        band: float,
        bucket: float,
    ) -> None:
        self.batch = Coordinator(
            samples,
            environments,
            environment_policy=policy,
            admission_policy=admission,
            band_s=band,
            bucket_s=bucket,
            resident_concurrency=residents,
        )
        self.c_r = residents if residents is not None else 10**9
        self.resident_queue: list[tuple[float, int, str]] = []  # arrival, order of entry, name
        self.entries = 0
        self.c_s = samples
        self.c_e = environments if environments is not None else 10**9
        self.caas = policy == "caas"
        self.longest_first = admission == "longest-expected-first"
        self.samples: dict[str, Modelled] = {}
        self.queue = ReferenceChainQueue(band if self.caas else ARRIVAL_BAND_S, bucket)
        self.now = 0.0
        self.begun = 0.0
        self.last: Any = None  # when the last step was taken

    def count(self, states: set[str]) -> int:
        return sum(sample.state in states for sample in self.samples.values())

    @rule(wait=st.floats(0, 40))
    def time_passes(self, wait: float) -> None:
        self.now += wait

    @rule(expected=st.none() | st.sampled_from([0.0, 1.0, 2.5, 1e300]) | st.floats(0, 9))
    def submit(self, expected: float | None) -> None:
        name = f"s{len(self.samples)}"
        if not self.samples:
            self.begun = self.now
        self.batch.submit(name, self.now, expected)
        self.last = self.now
        self.samples[name] = Modelled(self.now, expected=expected)

    @precondition(lambda self: self.samples)
    @rule(data=st.data())
    def submit_again(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.samples)))
        before = self.samples[name]
        if before.state != "returned":
            with pytest.raises(ValueError, match="submitted before"):
                self.batch.submit(name, self.now)
            return
        self.begin_another_attempt(name)

    @precondition(lambda self: self.count(IN_SLOT | {"waiting"}))
    @rule(data=st.data(), wait=st.floats(0, 3))
    def an_attempt_is_lost_and_another_begins(self, data: st.DataObject, wait: float) -> None:
        alive = [name for name, sample in self.samples.items() if sample.state in IN_SLOT | {"waiting"}]
        name = data.draw(st.sampled_from(alive))
        self.take(name, "put_back")
        self.now += wait
        self.begin_another_attempt(name)

    def begin_another_attempt(self, name: str) -> None:
        before = self.samples[name]
        self.batch.submit(name, self.now)
        self.last = self.now
        self.samples[name] = Modelled(
            self.now, passed=before.passed, admissions=before.admissions, expected=before.expected
        )

    @rule()
    def admit(self) -> None:
        free = self.c_s - self.count(IN_SLOT)
        order = self.admission_order()
        expected = [name for name in order if self.samples[name].state == "waiting"][:free]
        assert self.batch.admit(self.now) == expected
        self.last = self.now
        for name in expected:
            self.samples[name].state = "admitted"
            self.samples[name].admitted = self.now
            self.samples[name].waited = self.now - self.samples[name].submitted
            self.samples[name].admissions += 1
        self.pass_over(order, expected[-1:], free - len(expected))

    def admission_order(self) -> list[str]:
        """All samples: those that were passed, by place, then the others in the order of the policy."""
        names = list(self.samples)
        known = sorted(sample.expected for sample in self.samples.values() if sample.expected is not None)
        middle = known[len(known) // 2] if known else 0.0

        def key(name: str) -> tuple[bool, float, int]:
            sample = self.samples[name]
            length = middle if sample.expected is None else sample.expected
            later = self.longest_first and not sample.passed
            return not sample.passed, -length if later else 0.0, names.index(name)

        return sorted(names, key=key)

    def pass_over(self, order: list[str], last: list[str], slots_left: int) -> None:
        """Once a sample was admitted, nothing before it is ahead; with slots left over, nothing at all is."""
        end = len(order) if slots_left else order.index(last[0]) + 1 if last else 0
        for name in order[:end]:
            self.samples[name].passed = True

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

    @rule()
    def grant_residents(self) -> None:
        free = self.c_r - self.residents()
        expected = [name for _, _, name in sorted(self.resident_queue)[:free]]
        assert self.batch.grant_residents(self.now) == expected
        self.last = self.now
        for name in expected:
            sample = self.samples[name]
            sample.state = "admitted"
            sample.resident_waits.append(self.now - sample.since)
            sample.resident_since = self.now
            self.leave_resident_queue(name)

    def residents(self) -> int:
        return sum(sample.resident_since is not None for sample in self.samples.values())

    def leave_resident_queue(self, name: str) -> None:
        self.resident_queue = [entry for entry in self.resident_queue if entry[2] != name]

    @precondition(lambda self: self.samples)
    @rule(data=st.data(), step=st.sampled_from(RESIDENT_STEPS), earlier=st.none() | st.floats(0, 60))
    def take_resident(self, data: st.DataObject, step: str, earlier: float | None) -> None:
        name = data.draw(st.sampled_from(sorted(self.samples)))
        sample = self.samples[name]
        between, holds = sample.state == "admitted", sample.resident_since is not None
        allowed = {
            "request_resident": between and not holds,
            "finish_resident": between and holds,
            "cancel_resident": holds or sample.state == "resident_queued",
        }[step]
        if not allowed:
            with pytest.raises(TransitionError):
                getattr(self.batch, step)(name, self.now)
            return
        if step == "request_resident":
            assert sample.admitted is not None
            since = self.now
            if earlier is None:
                self.batch.request_resident(name, self.now)
            else:
                with pytest.raises(ValueError, match="since must be"):
                    self.batch.request_resident(name, self.now, math.nextafter(sample.admitted, -math.inf))
                since = max(self.now - earlier, sample.admitted)
                self.batch.request_resident(name, self.now, since)
            sample.state, sample.since = "resident_queued", since
            self.entries += 1
            arrival = math.floor((since - self.begun) / ARRIVAL_BAND_S)
            self.resident_queue.append((arrival, self.entries, name))
        else:
            getattr(self.batch, step)(name, self.now)
            self.end_residency(name)
        self.last = self.now

    def end_residency(self, name: str) -> None:
        sample = self.samples[name]
        if sample.state == "resident_queued":
            sample.resident_waits.append(self.now - sample.since)
            self.leave_resident_queue(name)
            sample.state = "admitted"
        elif sample.resident_since is not None:
            sample.resident_times.append(self.now - sample.resident_since)
            sample.resident_since = None

    @precondition(lambda self: self.samples)
    @rule(data=st.data(), step=st.sampled_from(sorted(CHANGES)))
    def step(self, data: st.DataObject, step: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.samples)))
        self.take(name, step)

    @precondition(lambda self: self.count({"admitted"}))
    @rule(data=st.data(), seconds=st.floats(0, 9), cut=st.booleans(), earlier=st.none() | st.floats(0, 60))
    def run_a_turn_and_ask(
        self, data: st.DataObject, seconds: float, cut: bool, earlier: float | None
    ) -> None:
        """The common path, so that queues grow deep enough to be worth ordering."""
        ready = [name for name, sample in self.samples.items() if sample.state == "admitted"]
        name = data.draw(st.sampled_from(ready))
        self.take(name, "start_inference")
        self.now += seconds
        self.take(name, "cancel_inference" if cut else "finish_inference")
        self.take(name, "request_environment", earlier)

    def take(self, name: str, step: str, earlier: float | None = None) -> None:
        sample = self.samples[name]
        sources, target = CHANGES[step]
        if sample.state not in sources:
            with pytest.raises(TransitionError):
                getattr(self.batch, step)(name, self.now)
            return
        since = self.now
        if earlier is None:
            getattr(self.batch, step)(name, self.now)
        else:
            assert sample.admitted is not None
            with pytest.raises(ValueError, match="since must be"):
                self.batch.request_environment(name, self.now, math.nextafter(sample.admitted, -math.inf))
            since = max(self.now - earlier, sample.admitted)
            self.batch.request_environment(name, self.now, since)
        self.last = self.now
        spent = self.now - sample.since
        if sample.state == "waiting":
            sample.waited = self.now - sample.submitted
        if sample.state == "inference":
            (sample.turns if step == "finish_inference" else sample.failed_turns).append(spent)
        elif sample.state == "queued":
            sample.queued.append(spent)
            assert self.queue.discard(name)
        elif sample.state == "environment":
            sample.jobs.append(spent)
            sample.stages += step == "finish_environment"
        if target in ("finished", "withdrawn", "returned"):
            self.end_residency(name)
        sample.state = target
        sample.since = since
        if target in ("finished", "withdrawn"):
            sample.ended = self.now
        if target == "queued":
            mean = sum(sample.turns) / len(sample.turns) if sample.turns else 0.0
            depth = (len(sample.turns), mean) if self.caas else (0, 0.0)
            self.queue.push(name, requested_at=since - self.begun, turns=depth[0], mean_inference_s=depth[1])

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
        assert batch.resident_queued == self.count({"resident_queued"}) == len(self.resident_queue)
        assert batch.resident == self.residents() <= self.c_r
        assert batch.finished == self.count({"finished"})
        assert batch.withdrawn == self.count({"withdrawn"})
        assert batch.returned == self.count({"returned"})
        assert batch.samples() == list(self.samples)

    @invariant()
    def times_agree(self) -> None:
        for name, sample in self.samples.items():
            times = self.batch.times(name)
            assert times.state == self.batch.state(name) == sample.state
            assert (times.submitted_at, times.admitted_at) == (sample.submitted, sample.admitted)
            assert times.finished_at == sample.ended
            assert (times.admission_wait_s, times.admissions) == (sample.waited, sample.admissions)
            assert (times.turns, times.environment_stages) == (len(sample.turns), sample.stages)
            assert times.inference_s == sum(sample.turns)
            assert times.failed_inference_s == sum(sample.failed_turns)
            assert times.environment_queue_s == sum(sample.queued)
            assert times.environment_s == sum(sample.jobs)
            assert times.resident == (sample.resident_since is not None)
            assert times.resident_wait_s == sum(sample.resident_waits)
            assert times.resident_s == sum(sample.resident_times)

    def teardown(self) -> None:
        if not hasattr(self, "batch"):
            return
        for name in self.samples:
            if self.samples[name].state not in ("finished", "withdrawn"):
                self.take(name, "withdraw")
        assert self.batch.waiting == self.batch.admitted == self.batch.returned == 0
        assert self.batch.environment_queued == self.batch.environment_running == 0
        assert self.batch.resident_queued == self.batch.resident == 0
        summary = self.batch.summary()
        assert summary.turns == sum(len(sample.turns) for sample in self.samples.values())
        assert summary.readmissions == sum(max(s.admissions - 1, 0) for s in self.samples.values())
        assert summary.environment_s == sum(sum(sample.jobs) for sample in self.samples.values())
        assert summary.resident_s == sum(sum(sample.resident_times) for sample in self.samples.values())
        assert summary.resident_wait_s == sum(sum(sample.resident_waits) for sample in self.samples.values())


TestCoordinator = CoordinatorMachine.TestCase
TestCoordinator.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
