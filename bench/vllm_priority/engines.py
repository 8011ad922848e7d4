"""vLLM's own schedulers over block pools that hold trajectories, and its own `Request` objects."""

import os
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from coresched_vllm.configuration import ONE_STATE_PER_TRAJECTORY, SECTION
from coresched_vllm.metrics import FOLDER_VARIABLE
from coresched_vllm.virtual.boot import Settings
from coresched_vllm.virtual.engine import VirtualEngine
from vllm import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.request import Request

from coresched.capacity.footprint import footprint

MODEL = "Qwen3-Next-80B-A3B"
BLOCKS = 20_000
RUNNING = 256  # vLLM's default --max-num-seqs on most machines
SHORTEST_RUNNING, LONGEST_RUNNING = 100, 700  # so that they do not fill their blocks all in one step
RESIDENT = 100
SHORTEST, LONGEST = 4_000, 40_000  # tokens of a resident trajectory
OTHERS = 4_000  # tokens of a prompt that finds nothing, for which its length is no matter
NEW_TOKENS = 1_500  # of a turn's prompt, over its trajectory's context

_LAYOUT = footprint(MODEL, "vllm").layout
assert _LAYOUT is not None  # vLLM has one
BLOCK_TOKENS = _LAYOUT.block_tokens


class Workload:
    """Trajectories, the first `RESIDENT` of them cached, and a request of each for its next turn."""

    def __init__(self, waiting: int) -> None:
        random = Random(0)
        self.contexts = [_tokens(random, random.randint(SHORTEST, LONGEST)) for _ in range(RESIDENT)]
        self.tokens = sum(map(len, self.contexts))
        hash_function = get_hash_fn_by_name("sha256")
        init_none_hash(hash_function)
        hasher = get_request_block_hasher(BLOCK_TOKENS, hash_function)
        sampling = SamplingParams(max_tokens=64, ignore_eos=True, temperature=0.0)
        self.requests = []
        for number in range(waiting):
            is_resident = number < RESIDENT
            prompt = [*self.contexts[number], *_tokens(random, NEW_TOKENS)] if is_resident else None
            request = Request(
                f"request-{number}",
                prompt or _tokens(random, OTHERS),
                sampling,
                None,
                block_hasher=hasher,
                session_id=label_of(number),
            )
            self.requests.append(request)

    def queue(self, size: int) -> list[Any]:
        """The first so many, those of resident trajectories anywhere among the others; by arrival."""
        chosen = self.requests[:size]
        Random(size).shuffle(chosen)
        for place, request in enumerate(chosen):
            request.arrival_time = float(place)
        return chosen


def label_of(number: int) -> str:
    return f"trajectory-{number}"


def made_engine(
    folder: Path,
    workload: Workload,
    scheduler_cls: Any,
    scheduling_policy: str = "fcfs",
    *,
    one_state_per_trajectory: bool = True,
) -> VirtualEngine:
    """An engine that holds the resident trajectories and is full of requests that do not end.

    Where its scheduler has metrics, it has them in a folder of its own in ``folder``.
    """
    assert _LAYOUT is not None
    os.environ[FOLDER_VARIABLE] = tempfile.mkdtemp(dir=folder)
    engine = VirtualEngine(
        folder,
        Settings(
            blocks=BLOCKS,
            block_size=BLOCK_TOKENS,
            state_groups=_LAYOUT.state_groups,
            max_num_seqs=RUNNING,
            max_num_batched_tokens=65_536,
            max_model_len=131_072,
            scheduling_policy=scheduling_policy,
            scheduler_cls=scheduler_cls,
            additional_config={SECTION: {ONE_STATE_PER_TRAJECTORY: one_state_per_trajectory}},
        ),
    )
    for number, context in enumerate(workload.contexts):
        engine.submit(f"fill-{number}", context, 1, session_id=label_of(number))
    ended = 0
    while ended < RESIDENT:
        ended += len(engine.step())
    for number in range(RUNNING):
        random = Random(f"running {number}")
        prompt = _tokens(random, random.randint(SHORTEST_RUNNING, LONGEST_RUNNING))
        engine.submit(f"running-{number}", prompt, 100_000, session_id=f"running-{number}")
    while len(engine.scheduler.running) < RUNNING:
        engine.step()
    engine.step()
    return engine


def require_resident(engine: VirtualEngine, workload: Workload) -> None:
    """Raises RuntimeError unless the pool holds each resident trajectory, in whole blocks, and no other."""
    for number, request in enumerate(workload.requests):
        hit = hit_of(engine.scheduler, request)
        context = len(workload.contexts[number]) - 1 if number < RESIDENT else 0  # a state before its end
        expected = context // BLOCK_TOKENS * BLOCK_TOKENS
        if hit != expected:
            raise RuntimeError(f"{request.request_id} must find {expected} tokens cached, and finds {hit}")


def hit_of(scheduler: Any, request: Any) -> int:
    coordinator = scheduler.kv_cache_manager.coordinator
    return int(coordinator.find_longest_cache_hit(request.block_hashes, request.num_tokens - 1)[1])


def _tokens(random: Random, count: int) -> list[int]:
    return [3 + byte for byte in random.randbytes(count)]
