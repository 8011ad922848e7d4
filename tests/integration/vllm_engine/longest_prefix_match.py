"""The rival of RP: each pass asks every waiting request for its cached prefix, and the longest goes first."""

from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler


class LongestPrefixMatch(Scheduler):
    queries = 0

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        ordered = sorted(self.waiting, key=self._hit, reverse=True)  # stable: ties in order of arrival
        self.waiting.clear()
        self.waiting.extend(ordered)
        return super().schedule(*args, **kwargs)

    def _hit(self, request: Any) -> int:
        self.queries += 1
        tokens = request.num_tokens - 1
        return int(self.kv_cache_manager.coordinator.find_longest_cache_hit(request.block_hashes, tokens)[1])
