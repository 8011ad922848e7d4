"""One engine of this process as the worker of a lockstep run."""

from collections.abc import Sequence

from coresched_engine.fleet.engine_process import FinishedRequest, SteppedEngine
from coresched_engine.virtual.conversation import Conversation

from coresched.lab.simulator.lockstep.workers import FinishedTurn, WorkerCounts
from coresched.lab.simulator.workload import Workload
from coresched.trajectory.schema import Trajectory


class OneEngine:
    """`SteppedWorkers` that are one engine. ``batch`` is in the order of ``workload``."""

    def __init__(
        self, engine: SteppedEngine, vocabulary: int, batch: Sequence[Trajectory], workload: Workload
    ) -> None:
        self._engine = engine
        self._vocabulary = vocabulary
        self._batch = batch
        self._workload = workload
        self._conversations: dict[int, Conversation] = {}

    def next_event_s(self, worker: int) -> float:
        return self._engine.next_event_s

    def enqueue(self, worker: int, sample: int, turn: int, t: float) -> None:
        if sample not in self._conversations:
            self._conversations[sample] = Conversation(self._batch[sample], 0, self._vocabulary)
        self._engine.submit(
            f"{sample:06d}-{turn:06d}",
            self._conversations[sample].prompt,
            self._workload.output_tokens[turn],
            self._workload.labels[sample],
            t,
        )

    def advance(self, workers: Sequence[int], until: float) -> list[list[FinishedTurn]]:
        return [[self._finished(each) for each in self._engine.advance(until)] for _ in workers]

    def counts(self) -> list[WorkerCounts]:
        return [WorkerCounts(self._engine.busy_s, self._engine.prefilled_tokens)]

    def _finished(self, ended: FinishedRequest) -> FinishedTurn:
        """Raises RuntimeError where the engine has not served the turn to its end."""
        if ended.aborted is not None or ended.first_token_s is None:
            raise RuntimeError(f"request {ended.request_id} was not served: {ended.aborted}")
        sample = int(ended.request_id.partition("-")[0])
        self._conversations[sample].answered(ended.output_ids)
        return FinishedTurn(
            sample=sample,
            first_token_s=ended.first_token_s,
            finished_s=ended.finished_s,
            cached_tokens=ended.cached_tokens,
            queue_s=ended.queue_s,
            retractions=ended.retractions,
        )
