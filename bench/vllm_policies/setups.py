"""The workloads, the engines and their limits under which the orders are compared."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from bench.sglang_policies import setups as sglang
from bench.vllm_policies.tiny_models import TINY_MODELS
from coresched.capacity.footprint import footprint
from coresched.capacity.vllm import usable_blocks
from coresched.trajectory.schema import Trajectory, Turn
from coresched.trajectory.workloads import demo_workload

MODELS = ("Ling-3.0-flash", "Qwen3-Next-80B-A3B")
"""Of the catalogue, whose blocks the made-up engines have."""
CACHE_BYTES = 10 << 30

Trajectories = Callable[[int], list[Trajectory]]


@dataclass(frozen=True)
class SetUp:
    """A batch on one engine; ``trajectories(seed)`` gives at least ``samples``, of which so many are run."""

    name: str
    samples: int
    sample_concurrency: int
    max_num_seqs: int
    trajectories: Trajectories


def _replies_at_a_quarter(trajectory: Trajectory) -> Trajectory:
    turns = (Turn(-(-turn.output_tokens // 4), env=turn.env) for turn in trajectory.turns)
    return Trajectory(
        id=trajectory.id, initial_prompt_tokens=trajectory.initial_prompt_tokens, turns=tuple(turns)
    )


def _shipped(_seed: int) -> list[Trajectory]:
    """A token that is generated takes a step, which here takes most of the time."""
    return [_replies_at_a_quarter(each) for each in demo_workload()]


def _as_in_sglang(setup: sglang.SetUp) -> SetUp:
    return SetUp(
        setup.name,
        setup.samples,
        setup.sample_concurrency,
        setup.max_running_requests,
        setup.trajectories,
    )


SHORT_QUEUE, LONG_QUEUE, LONG_STAGES = map(
    _as_in_sglang, (sglang.SHORT_QUEUE, sglang.LONG_QUEUE, sglang.LONG_STAGES)
)
SWE = SetUp("swe", 200, 200, 32, _shipped)
SETUPS = (SHORT_QUEUE, LONG_QUEUE, LONG_STAGES, SWE)


def smaller(setup: SetUp) -> SetUp:
    """A fifth of the trajectories, for a look."""
    return replace(
        setup, samples=setup.samples // 5, sample_concurrency=max(12, setup.sample_concurrency // 5)
    )


def virtual_settings(model: str, setup: SetUp) -> dict[str, Any]:
    """Fields of `coresched_vllm.virtual.boot.Settings`: the blocks of ``model`` in `CACHE_BYTES`."""
    layout = footprint(model, "vllm").layout
    assert layout is not None  # of vLLM
    assert layout.attention_groups == 1  # as the engine with made-up outputs has
    return {
        "blocks": usable_blocks(layout, CACHE_BYTES) + 1,
        "block_size": layout.block_tokens,
        "state_groups": layout.state_groups,
        "max_num_seqs": setup.max_num_seqs,
        "max_num_batched_tokens": 8_192,
        "max_model_len": 131_072,
    }


@dataclass(frozen=True)
class TinySetUp:
    """Whole engines, and the blocks of each model's pool."""

    name: str
    blocks: dict[str, int] = field(hash=False)
    max_num_seqs: int = 2
    samples: int = 8
    turns: int = 4
    initial_prompt_tokens: int = 300
    output_tokens: int = 6
    response_tokens: int = 90
    environment_s: float = 0.2

    def trajectories(self, seed: int) -> list[Trajectory]:
        """As those of `bench.sglang_policies.setups`."""
        made = sglang.SetUp(
            name=self.name,
            samples=self.samples,
            sample_concurrency=self.samples,
            turns=self.turns,
            initial_prompt_tokens=self.initial_prompt_tokens,
            output_tokens=self.output_tokens,
            response_tokens=self.response_tokens,
            environment_s=self.environment_s,
        )
        return made.trajectories(seed)


# The small pool holds about half of the trajectories, the large one all of them.
TINY_SMALL_POOL = TinySetUp("tiny-small-pool", {"lfm2": 90, "qwen3-next": 60, "qwen3": 60})
TINY_LARGE_POOL = TinySetUp("tiny-large-pool", dict.fromkeys(TINY_MODELS, 400))
# What a request gets then depends on no other: vLLM's kernels round differently in other batches.
TINY_ONE_AT_A_TIME = replace(TINY_SMALL_POOL, name="tiny-one-at-a-time", max_num_seqs=1)
TINY_SETUPS = (TINY_SMALL_POOL, TINY_LARGE_POOL, TINY_ONE_AT_A_TIME)
