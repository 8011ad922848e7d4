"""A batch of trajectories on one virtual engine: each next turn is sent when the turn before has ended."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Literal, TypeVar

from coresched_engine.virtual.conversation import Conversation

from coresched.batch.coordinator import Coordinator
from coresched.lab.metrics import measure, percentile
from coresched.lab.simulator.outcome import Outcome
from coresched.lab.simulator.workload import NO_ENVIRONMENT, Column, build_workload
from coresched.trajectory.schema import Trajectory
from coresched_simdevice.configuration import device
from coresched_simdevice.virtual.engine import VirtualEngine
from coresched_simdevice.virtual.finished import Finished

T = TypeVar("T")


@dataclass(frozen=True)
class BatchSettings:
    """How the batch is run. Seconds are virtual."""

    sample_concurrency: int
    """C_S: trajectories at once."""
    environment_concurrency: int | None = None
    """C_E: environment stages at once; None: no limit."""
    environment_policy: Literal["fcfs", "caas"] = "caas"
    seed: int = 0
    """Of the tokens."""
    reserve_output: bool = True
    """See `VirtualEngine.submit`."""


@dataclass(frozen=True)
class BatchResult:
    """What the engine did with the batch. Shares are 0 to 1, seconds virtual unless said otherwise."""

    makespan_s: float
    turns: int
    input_tokens: int
    output_tokens: int
    cache_reuse: float
    """Cached input tokens over input tokens."""
    new_prefill_tokens: int
    """Uncached input tokens."""
    recomputed_tokens: int
    """Prefilled beyond these, after retractions."""
    later_turns: int
    """Turns that are not the first of their trajectory."""
    later_turns_without_hit: int
    queue_p95_s: float
    """95th percentile, over the turns, of the time in the waiting queue (nearest rank)."""
    ttft_s: float
    """Mean time from arrival to the first output token."""
    retractions: int
    busy_s: float
    """Time the device computed."""
    scheduling_passes: int
    priority_calculation_s: float
    """Real CPU seconds that ordering the waiting queue took."""
    batching_s: float
    """Real CPU seconds that making prefill batches took: ordering, cache lookups, admission."""


def run_batch(
    engine: VirtualEngine, trajectories: Sequence[Trajectory], settings: BatchSettings
) -> BatchResult:
    """Run the batch to its end on an engine that has not run yet. Trajectories start in their order.

    The trajectory's id is the label. The same arguments give the same result, the real CPU seconds apart.
    Raises InputError before anything runs for a trajectory that the engine has no room for, or whose
    environment durations are not recorded; RuntimeError where SGLang ends a request early.
    """
    return _Run(engine, trajectories, settings).run()


class _Run:
    def __init__(
        self, engine: VirtualEngine, trajectories: Sequence[Trajectory], settings: BatchSettings
    ) -> None:
        self.engine = engine
        self.settings = settings
        self.times = device().times
        self.workload = build_workload(trajectories, page_tokens=1)
        self._require_room(trajectories)
        self.coordinator = Coordinator(
            settings.sample_concurrency,
            settings.environment_concurrency,
            environment_policy=settings.environment_policy,
        )
        self.index = {trajectory.id: place for place, trajectory in enumerate(trajectories)}
        self.trajectories = trajectories
        self.conversations: dict[str, Conversation] = {}
        self.environments: list[tuple[float, int, str]] = []
        self.sequence = count()
        self.stage_s: dict[str, float] = {}
        self.completed_s: list[float] = []
        self.finished: list[Finished] = []
        self.later_turns = self.later_turns_without_hit = 0

    def _require_room(self, trajectories: Sequence[Trajectory]) -> None:
        workload = self.workload
        for place, trajectory in enumerate(trajectories):
            for turn in range(workload.first_turn[place], workload.first_turn[place + 1]):
                self.engine.require_room(
                    f"trajectory {trajectory.id!r}, turn {turn - workload.first_turn[place]}",
                    workload.prompt_tokens[turn],
                    workload.output_tokens[turn],
                )

    def run(self) -> BatchResult:
        for trajectory in self.trajectories:
            self.coordinator.submit(trajectory.id, 0.0)
        self._admit(0.0)
        while self.coordinator.admitted or self.coordinator.waiting:
            until = self.environments[0][0] if self.environments else inf
            for finished in self.engine.advance(until, stop_at_finish=True):
                self._turn_finished(finished)
            now = self.engine.now_s
            while self.environments and self.environments[0][0] <= now:
                self._environment_finished(heapq.heappop(self.environments)[2], now)
        return self._result()

    def _admit(self, now: float) -> None:
        for label in self.coordinator.admit(now):
            trajectory = self.trajectories[self.index[label]]
            self.conversations[label] = Conversation(
                trajectory, self.settings.seed, self.engine.vocabulary_size
            )
            self._send(label, now)

    def _send(self, label: str, now: float) -> None:
        conversation = self.conversations[label]
        self.coordinator.start_inference(label, now)
        self.engine.submit(
            # Of one length, so that none begins another: see VirtualEngine.abort.
            f"{self.index[label]:06d}-{conversation.turn:06d}",
            conversation.prompt,
            self._turn_column(label, self.workload.output_tokens),
            label,
            now + self.times.turnaround_s + self.times.turnaround_token_s * len(conversation.prompt),
            reserve_output=self.settings.reserve_output,
        )

    def _turn_column(self, label: str, column: Column[T]) -> T:
        """Of the sample's present turn."""
        return column[self.workload.first_turn[self.index[label]] + self.conversations[label].turn]

    def _turn_finished(self, finished: Finished) -> None:
        label, now = finished.label, finished.finished_s
        assert label is not None
        asked = self._turn_column(label, self.workload.output_tokens)
        if finished.aborted is not None or len(finished.output_ids) != asked:
            raise RuntimeError(
                f"SGLang ended {finished.request_id} of {label!r} after {len(finished.output_ids)} of "
                f"{asked} tokens: {finished.aborted or 'no reason given'}"
            )
        self.finished.append(finished)
        conversation = self.conversations[label]
        if conversation.turn:
            self.later_turns += 1
            self.later_turns_without_hit += not finished.cached_tokens
        self.coordinator.finish_inference(label, now)
        stage_s = self._turn_column(label, self.workload.environment_s)
        conversation.answered(finished.output_ids)
        if stage_s == NO_ENVIRONMENT:
            self._next_turn(label, now)
            return
        self.stage_s[label] = stage_s
        self.coordinator.request_environment(label, now)
        self._dispatch(now)

    def _dispatch(self, now: float) -> None:
        for label in self.coordinator.dispatch(now):
            heapq.heappush(self.environments, (now + self.stage_s[label], next(self.sequence), label))

    def _environment_finished(self, label: str, now: float) -> None:
        self.coordinator.finish_environment(label, now)
        self._next_turn(label, now)
        self._dispatch(now)

    def _next_turn(self, label: str, now: float) -> None:
        if not self.conversations[label].ended:
            self._send(label, now)
            return
        del self.conversations[label]
        self.coordinator.finish(label, now)
        self.completed_s.append(now)
        self._admit(now)

    def _result(self) -> BatchResult:
        engine, finished = self.engine, self.finished
        metrics = measure(self._outcome())
        return BatchResult(
            makespan_s=metrics.makespan_s,
            turns=len(finished),
            input_tokens=metrics.input_tokens,
            output_tokens=metrics.output_tokens,
            cache_reuse=metrics.cache_reuse,
            new_prefill_tokens=metrics.new_prefill_tokens,
            recomputed_tokens=engine.prefilled_tokens - metrics.new_prefill_tokens,
            later_turns=self.later_turns,
            later_turns_without_hit=self.later_turns_without_hit,
            queue_p95_s=percentile([each.queue_s for each in finished], 95),
            ttft_s=metrics.ttft_s,
            retractions=sum(each.retractions for each in finished),
            busy_s=engine.busy_s,
            scheduling_passes=engine.scheduling_passes,
            priority_calculation_s=engine.priority_s,
            batching_s=engine.batching_s,
        )

    def _outcome(self) -> Outcome:
        outcome = Outcome(
            workers=1,
            requests=len(self.finished),
            busy_s=[self.engine.busy_s],
            completed_s=self.completed_s,
        )
        output_tokens = 0
        for each in self.finished:
            assert each.first_token_s is not None
            outcome.input_tokens += each.prompt_tokens
            outcome.new_prefill_tokens += each.prompt_tokens - each.cached_tokens
            outcome.ttft_s += each.first_token_s - each.submitted_s
            outcome.decode_s += each.finished_s - each.first_token_s
            output_tokens += len(each.output_ids)
        outcome.output_tokens.append(output_tokens)
        return outcome
