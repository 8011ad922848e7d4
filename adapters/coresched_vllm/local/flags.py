"""Flags of `vllm serve` for a tiny model whose weights vLLM makes up."""

from __future__ import annotations

import json
from dataclasses import dataclass

from coresched_vllm.names import ROUTING_PREFIX


@dataclass(frozen=True)
class Pool:
    """What a server of a tiny model holds: ``blocks`` of 128 tokens or of one convolution's state."""

    blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    longest_context: int

    def flags(self, label_capacity: int | None) -> list[str]:
        """vLLM's flags; with C_A those of routing-prefix too, else vLLM's own scheduler."""
        # The pool is as given, whatever memory there is, and vLLM must not want most of that for itself.
        flags = ["--served-model-name", "tiny", "--load-format", "dummy", "--dtype", "float32"]
        flags += ["--enforce-eager", "--max-model-len", str(self.longest_context)]
        flags += ["--max-num-seqs", str(self.max_num_seqs)]
        flags += ["--max-num-batched-tokens", str(self.max_num_batched_tokens)]
        flags += ["--num-gpu-blocks-override", str(self.blocks), "--kv-cache-memory-bytes", str(256 << 20)]
        flags += ["--gpu-memory-utilization", "0.1", "--disable-uvicorn-access-log"]
        flags += ["--enable-prefix-caching", "--enable-prompt-tokens-details"]
        if label_capacity is not None:
            flags += ["--scheduler-cls", ROUTING_PREFIX]
            flags += ["--additional-config", json.dumps({"coresched": {"label_capacity": label_capacity}})]
        return flags
