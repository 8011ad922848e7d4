"""The discrete pools of one engine, as the peak estimate asks about them."""

from dataclasses import dataclass, replace
from typing import Protocol

from coresched.capacity.demand import Demand, Footing
from coresched.capacity.estimate import Limit
from coresched.capacity.footprint import Footprint
from coresched.capacity.sglang import (
    DoesNotFit,
    SglangFit,
    SglangFlags,
    flags_for,
    held_slots,
    slots_per_request,
)
from coresched.capacity.vllm import BlockLayout, trajectory_blocks, usable_blocks
from coresched.errors import InputError


class EngineWorker(Protocol):
    """One worker: what it charges a trajectory, and whether a demand fits its pools."""

    @property
    def footing(self) -> Footing: ...
    def fits(self, demand: Demand) -> bool: ...
    def limit(self, demand: Demand) -> Limit: ...
    def kv_pool_bytes(self, demand: Demand) -> int:
        """Bytes that the demand's KV takes on one rank."""

    def state_pool_bytes(self, demand: Demand) -> int:
        """Bytes that the demand's states take on one rank."""

    def with_footprint(self, footprint: Footprint) -> "EngineWorker":
        """The same worker serving a model of another footprint."""


@dataclass(frozen=True)
class SglangWorker:
    """SGLang's two pools, with the state slots set outright to what the demand needs."""

    footprint: Footprint
    memory_bytes: int
    flags: SglangFlags

    @property
    def reserve(self) -> int:
        """S, or 0 for a model without states."""
        return slots_per_request(self.flags) if self.footprint.state_bytes else 0

    @property
    def footing(self) -> Footing:
        page = self.flags.page_size
        return Footing(
            kv_units=lambda tokens: -(-tokens // page),
            shared_units=lambda tokens: tokens // page,
            running_units=self.reserve,
            idle_units=held_slots(self.flags).retained if self.reserve else 0,
        )

    def fit(self, demand: Demand) -> SglangFit:
        """The flags and pools for the demand. Raises DoesNotFit."""
        return flags_for(
            demand.running,
            max(1, demand.kv_units * self.flags.page_size),
            self.flags,
            memory_bytes=self.memory_bytes,
            kv_bytes=self.footprint.kv_bytes,
            state_bytes=self.footprint.state_bytes,
            extra_slots=max(0, demand.state_units - self.reserve * demand.running),
        )

    def fits(self, demand: Demand) -> bool:
        try:
            self.fit(demand)
        except DoesNotFit:
            return False
        return True

    def limit(self, demand: Demand) -> Limit:
        return "kv" if self.kv_pool_bytes(demand) >= self.state_pool_bytes(demand) else "state"

    def kv_pool_bytes(self, demand: Demand) -> int:
        ranks = self.flags.attn_dp_size * self.flags.dcp_size
        return demand.kv_units * self.flags.page_size * self.footprint.kv_bytes // ranks

    def state_pool_bytes(self, demand: Demand) -> int:
        slots = max(demand.state_units, self.reserve * demand.running) // self.flags.attn_dp_size + 1
        return slots * self.footprint.state_bytes

    def with_footprint(self, footprint: Footprint) -> "SglangWorker":
        return replace(self, footprint=footprint)


@dataclass(frozen=True)
class VllmWorker:
    """vLLM's one pool of blocks for both."""

    footprint: Footprint
    memory_bytes: int
    draft_tokens: int = 0
    one_state_per_trajectory: bool = True
    """Whether the scheduler evicts superseded states first, so that a waiting trajectory holds one."""

    @property
    def layout(self) -> BlockLayout:
        if self.footprint.layout is None:
            raise InputError(f"engine is {self.footprint.engine!r}; blocks are vLLM's")
        return self.footprint.layout

    @property
    def blocks(self) -> int:
        return usable_blocks(self.layout, self.memory_bytes)

    @property
    def footing(self) -> Footing:
        layout = self.layout
        span = layout.block_span_tokens
        empty = {
            running: trajectory_blocks(
                layout,
                0,
                running=running,
                draft_tokens=self.draft_tokens,
                one_state_per_trajectory=self.one_state_per_trajectory,
            )
            for running in (True, False)
        }
        return Footing(
            kv_units=lambda tokens: -(-tokens // span) * layout.attention_groups if span else 0,
            shared_units=lambda tokens: tokens // span * layout.attention_groups if span else 0,
            running_units=empty[True],
            idle_units=empty[False],
        )

    def fits(self, demand: Demand) -> bool:
        return demand.units <= self.blocks

    def limit(self, demand: Demand) -> Limit:
        return "kv" if demand.kv_units >= demand.state_units else "state"

    def kv_pool_bytes(self, demand: Demand) -> int:
        return demand.kv_units * self.layout.bytes_per_block

    def state_pool_bytes(self, demand: Demand) -> int:
        return demand.state_units * self.layout.bytes_per_block

    def with_footprint(self, footprint: Footprint) -> "VllmWorker":
        return replace(self, footprint=footprint)
