"""Rank 0 of a tensor-parallel group whose other ranks do not exist. Only vLLM can load this module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import distributed
from torch.testing._internal.distributed.fake_pg import FakeStore
from vllm.config import set_current_vllm_config
from vllm.distributed import parallel_state

BACKEND = "fake"
"""PyTorch's own, in which a rank believes that the others answer."""


@dataclass(frozen=True)
class _Size:
    """What of PyTorch's group is asked while layers are made."""

    ranks: int

    def size(self) -> int:
        return self.ranks

    def rank(self) -> int:
        return 0


class LoneRank(parallel_state.GroupCoordinator):  # type: ignore[misc]
    """Knows the size of its group, which is all that a model's layers ask, and reaches nobody."""

    def __init__(
        self, group_ranks: list[list[int]], local_rank: int, *_: Any, group_name: str | None = None, **__: Any
    ) -> None:
        self.unique_name = group_name or "group"
        self.rank = self.local_rank = self.rank_in_group = local_rank
        self.ranks = group_ranks[0]
        self.world_size = len(self.ranks)
        self.device = torch.device("cpu")
        self.cpu_group = self.device_group = _Size(self.world_size)
        self.device_communicator = self.mq_broadcaster = None
        self.use_custom_op_call = False


def join_alone(vllm_config: Any) -> None:
    """Make this process rank 0, once. All ranks have the same caches, so the one stands for all."""
    ranks = vllm_config.parallel_config.tensor_parallel_size
    distributed.init_process_group(BACKEND, rank=0, world_size=ranks, store=FakeStore())
    with (
        patch.object(parallel_state, "GroupCoordinator", LoneRank),
        patch.object(parallel_state, "_node_count", lambda _: 1),
        set_current_vllm_config(vllm_config),
    ):
        parallel_state.init_distributed_environment(
            world_size=ranks, rank=0, local_rank=0, backend=BACKEND, distributed_init_method="none"
        )
        parallel_state.initialize_model_parallel(ranks, backend=BACKEND)
