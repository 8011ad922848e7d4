"""A fleet's engines as the workers of one lockstep run."""

from array import array
from collections.abc import Sequence
from math import inf

from coresched.errors import InputError
from coresched.lab.simulator.lockstep.workers import FinishedTurn, WorkerCounts
from coresched.lab.simulator.workload import Workload
from coresched.trajectory.schema import Trajectory
from coresched_engine.fleet.processes import Engine
from coresched_engine.fleet.wire import Advance, Advanced, Close, Counts, Ended, Ready, Submit
from coresched_engine.virtual.conversation import Conversation


class EngineWorkers:
    """`SteppedWorkers` that are an engine's own schedulers.

    ``batch`` is in the order of ``workload``; the tokens of its prompts are made of ``seed``. A turn's label
    is its sample's.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        ready: Ready,
        batch: Sequence[Trajectory],
        workload: Workload,
        seed: int,
        *,
        longer: str,
    ) -> None:
        """``longer`` names the options that allow longer requests.

        Raises InputError for a turn without room.
        """
        _require_room(ready, batch, workload, longer)
        self._engines = engines
        self._vocabulary = ready.vocabulary
        self._batch = batch
        self._workload = workload
        self._seed = seed
        self._conversations: dict[int, Conversation] = {}
        self._next_event_s = [inf] * len(engines)

    def next_event_s(self, worker: int) -> float:
        return self._next_event_s[worker]

    def enqueue(self, worker: int, sample: int, turn: int, t: float) -> None:
        if sample not in self._conversations:
            self._conversations[sample] = Conversation(self._batch[sample], self._seed, self._vocabulary)
        self._engines[worker].send(
            Submit(
                # Of one length, so that none begins another: SGLang's abort would take it for that.
                request_id=f"{sample:06d}-{turn - self._workload.first_turn[sample]:06d}",
                prompt=self._conversations[sample].prompt.tobytes(),
                output_tokens=self._workload.output_tokens[turn],
                label=self._workload.labels[sample],
                at=t,
            )
        )
        if self._next_event_s[worker] == inf:
            # It sleeps till then; one that is busy looks for arrivals when its step has ended.
            self._next_event_s[worker] = t

    def advance(self, workers: Sequence[int], until: float) -> list[list[FinishedTurn]]:
        for worker in workers:
            self._engines[worker].send(Advance(until))
        finished = []
        for worker in workers:
            answer = self._engines[worker].receive(Advanced)
            self._next_event_s[worker] = answer.next_event_s
            finished.append([self._finished(self._engines[worker], each) for each in answer.ended])
        return finished

    def counts(self) -> list[WorkerCounts]:
        for engine in self._engines:
            engine.send(Close())
        answers = [engine.receive(Counts) for engine in self._engines]
        return [WorkerCounts(each.busy_s, each.prefilled_tokens) for each in answers]

    def _finished(self, engine: Engine, ended: Ended) -> FinishedTurn:
        sample, number = map(int, ended.request_id.split("-"))
        turn = self._workload.first_turn[sample] + number
        reply, asked = array("q", ended.output), self._workload.output_tokens[turn]
        if ended.aborted is not None or len(reply) != asked or ended.first_token_s is None:
            raise engine.error(
                f"ended turn {number} of {self._batch[sample].id!r} after {len(reply)} of "
                f"{asked} tokens: {ended.aborted or 'no reason given'}"
            )
        conversation = self._conversations[sample]
        conversation.answered(reply)
        if conversation.ended:
            del self._conversations[sample]
        return FinishedTurn(
            sample=sample,
            first_token_s=ended.first_token_s,
            finished_s=ended.finished_s,
            cached_tokens=ended.cached_tokens,
            queue_s=ended.queue_s,
            retractions=ended.retractions,
        )


def _require_room(ready: Ready, batch: Sequence[Trajectory], workload: Workload, longer: str) -> None:
    for sample, trajectory in enumerate(batch):
        first = workload.first_turn[sample]
        for turn in range(first, workload.first_turn[sample + 1]):
            prompt, output = workload.prompt_tokens[turn], workload.output_tokens[turn]
            if prompt > ready.longest_prompt or prompt + output > ready.longest_request:
                raise InputError(
                    f"trajectory {trajectory.id!r}: turns[{turn - first}] has {prompt} prompt and {output} "
                    f"output tokens, more than the {ready.longest_request} that one request may have; "
                    f"raise {longer}"
                )
