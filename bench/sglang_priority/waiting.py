"""SGLang's own `Req` objects: the next turns of the resident trajectories, and turns of others."""

from array import array
from random import Random
from typing import Any

from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
from sglang.srt.sampling.sampling_params import SamplingParams

from bench.sglang_priority.tree import SYSTEM_PROMPT, random_tokens

SHORTEST, LONGEST = 10_000, 100_000  # tokens of a context
NEW_TOKENS = 1_500  # of a turn's prompt, over its trajectory's context
DISTINCT = 2_000  # prompts: further requests have those of earlier ones, as 10,000 would take 5 GB


class Workload:
    """Trajectories, the first ``resident`` of them in the tree, and a request of each for its next turn."""

    def __init__(self, resident: int, waiting: int) -> None:
        rng = Random(0)
        system = random_tokens(rng, SYSTEM_PROMPT)

        def context() -> "array[int]":
            return system + random_tokens(rng, rng.randint(SHORTEST, LONGEST) - SYSTEM_PROMPT)

        self.contexts = [context() for _ in range(resident)]
        self.labels = [f"trajectory-{number}" for number in range(resident)]
        prompts = [
            (self.contexts[number] if number < resident else context()) + random_tokens(rng, NEW_TOKENS)
            for number in range(min(waiting, DISTINCT))
        ]
        others = prompts[resident:]
        self._requests = [
            _request(number, prompts[number] if number < DISTINCT else others[number % len(others)])
            for number in range(waiting)
        ]

    def queue(self, size: int) -> list[Any]:
        """That many requests in order of entry, those of resident trajectories anywhere among the others."""
        queue = self._requests[:size]
        Random(size).shuffle(queue)
        for place, request in enumerate(queue):
            request.time_stats.wait_queue_entry_time = 0.25 * place
        return queue

    def running(self, size: int) -> Any:
        """A running batch of the last resident trajectories, whose labels SGLang's routing-key counts."""
        resident = len(self.labels)
        return ScheduleBatch(
            reqs=[_request(number, array("q", [1])) for number in range(resident - size, resident)]
        )


def _request(number: int, prompt: "array[int]") -> Any:
    return Req(
        rid=f"request-{number}",
        origin_input_text="",
        origin_input_ids=prompt,
        sampling_params=SamplingParams(),
        routing_key=f"trajectory-{number}",
    )
