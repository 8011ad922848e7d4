"""What is compared: fixed costs of a prefill batch, ways to have fewer of them, and the batches."""

from dataclasses import dataclass, field, replace
from typing import Any, Final

from msgspec.structs import replace as replaced

from bench.sglang_policies.setups import SetUp
from coresched.lab.simulator.model import WorkerModel

FIXED_COSTS_S: Final = (0.055, 0.02, 0.005)
"""p0, the fixed cost of a prefill batch: as fitted to the paper, and less."""


def costing(model: WorkerModel, fixed_s: float) -> WorkerModel:
    """The same worker with another fixed cost of a prefill batch."""
    return replaced(model, times=replaced(model.times, prefill_batch_s=fixed_s))


@dataclass(frozen=True)
class Variant:
    """What SGLang is told, and how many returning turns are held in front of it (1: none)."""

    name: str
    server_args: dict[str, Any] = field(default_factory=dict)
    returns_held: int = 1


AS_IT_IS: Final = "as it is"
DELAYER: Final = {
    "enable_prefill_delayer": True,
    "prefill_delayer_queue_min_ratio": 0.25,
    "prefill_delayer_max_delay_ms": 1_000.0,
    # Without it the delay ends at the largest of the latest batches, which may be one.
    "prefill_max_requests": 8,
}
VARIANTS: Final = (
    Variant(AS_IT_IS),
    Variant("held in front, 8", returns_held=8),
    Variant("SGLang's delayer", DELAYER),
    Variant("mixed chunks", {"enable_mixed_chunk": True}),
)

# Agents as in SWE, shorter: a turn decodes for as long, and most of its prompt is in the cache.
BATCH: Final = SetUp(
    "agents",
    samples=72,
    sample_concurrency=56,
    turns=5,
    initial_prompt_tokens=2_000,
    output_tokens=200,
    response_tokens=300,
    environment_s=0.5,
    max_running_requests=80,
    state_slots=320,
)
QUICK_BATCH: Final = replace(BATCH, samples=16, sample_concurrency=12, turns=3, output_tokens=40)

# For a tiny model on the CPU, whose steps take some ten milliseconds.
TINY_BATCH: Final = SetUp(
    "tiny agents",
    samples=40,
    sample_concurrency=28,
    turns=4,
    initial_prompt_tokens=200,
    output_tokens=40,
    response_tokens=60,
    environment_s=0.05,
)
TINY_QUICK_BATCH: Final = replace(TINY_BATCH, samples=8, sample_concurrency=6, turns=2)
