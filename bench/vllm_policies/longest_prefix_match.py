"""The rival of RP: each pass asks every waiting request for its cached prefix, and the longest goes first."""

from time import perf_counter
from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler


class LongestPrefixMatch(Scheduler):  # type: ignore[misc]  # untyped where vLLM is not installed
    """vLLM's scheduler, synchronous, with its waiting queue in that order before each pass."""

    queries = 0
    seconds = 0.0
    """What ordering took, with the queries."""

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        began = perf_counter()
        self.order()
        self.seconds += perf_counter() - began
        return super().schedule(*args, **kwargs)

    def order(self) -> None:
        ordered = sorted(self.waiting, key=self._hit, reverse=True)  # stable: ties in order of arrival
        self.waiting.clear()
        self.waiting.extend(ordered)

    def _hit(self, request: Any) -> int:
        self.queries += 1
        tokens = request.num_tokens - 1
        return int(self.kv_cache_manager.coordinator.find_longest_cache_hit(request.block_hashes, tokens)[1])
