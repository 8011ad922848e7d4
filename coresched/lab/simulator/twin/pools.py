"""One worker's cache: KV pages and recurrent-state slots, least recently used eviction."""

from collections import OrderedDict
from collections.abc import Callable

from coresched.core.guard import KV_GROWTH
from coresched.lab.simulator.memory import SLOT_UNITS, Memory
from coresched.lab.simulator.workload import RequestColumns


class CachePools:
    """An entry is one trajectory: its KV tokens and its last state, usable and evicted only together.

    An idle entry holds one state slot and is evictable; a running one holds ``running_slot_units``. The
    shared prefix of a group is stored once while any entry of the group is present. While some idle entries
    are not ``is_live``, none that is live is evicted. ``evicted(sample)`` is told of each eviction.
    """

    def __init__(self, workload: RequestColumns, memory: Memory) -> None:
        self.memory = memory
        self.group = workload.group
        self.shared_tokens = workload.shared_tokens
        self.tokens: dict[int, int] = {}
        self.idle: OrderedDict[int, None] = OrderedDict()
        self.nodes: dict[int, int] = {}
        self.group_entries: dict[int, int] = {}
        self.group_running: dict[int, int] = {}
        self.used_pages = 0
        self.used_slot_units = 0
        self.committed_pages = 0
        self.tree_nodes = 0
        self.evictions = 0
        self.is_live: Callable[[int], bool] = lambda sample: False
        self.evicted: Callable[[int], object] = lambda sample: None

    def own_pages(self, sample: int, tokens: int) -> int:
        """Pages of ``tokens`` that are not the group's shared prefix."""
        own = tokens - self.shared_tokens[sample]
        return -(-own // self.memory.page_tokens) if own > 0 else 0

    def shared_pages(self, sample: int) -> int:
        return self.shared_tokens[sample] // self.memory.page_tokens

    def hit(self, sample: int, prompt_tokens: int) -> int:
        """Prompt tokens an idle entry spares; at least the last one is always computed."""
        return min(self.tokens.get(sample, 0), prompt_tokens - 1)

    def touch(self, sample: int) -> None:
        if sample in self.idle:
            self.idle.move_to_end(sample)

    def fits(self, sample: int, final_tokens: int) -> bool:
        """Whether all running requests can finish beside this one without losing a page."""
        return self.committed_pages + self._commitment(sample, final_tokens) <= self.memory.pages

    def start(self, sample: int, final_tokens: int) -> None:
        """Lock the entry, or make an empty one, for a request that will end with ``final_tokens``."""
        self.committed_pages += self._commitment(sample, final_tokens)
        group = self.group[sample]
        self.group_running[group] = self.group_running.get(group, 0) + 1
        if sample in self.idle:
            del self.idle[sample]
            self.used_slot_units += self.memory.running_slot_units - SLOT_UNITS
        else:
            self.tokens[sample] = 0
            self.used_slot_units += self.memory.running_slot_units
            entries = self.group_entries.get(group, 0)
            self.group_entries[group] = entries + 1
            if entries == 0:
                self.used_pages += self.shared_pages(sample)

    def grow(self, sample: int, tokens: int) -> None:
        """The running entry now holds ``tokens``."""
        self.used_pages += self.own_pages(sample, tokens) - self.own_pages(sample, self.tokens[sample])
        self.tokens[sample] = tokens

    def finish(self, sample: int, final_tokens: int, cached_tokens: int) -> None:
        """Unlock the entry as the most recently used; what the next turn cannot use is freed."""
        group = self.group[sample]
        self.group_running[group] -= 1
        self.committed_pages -= self._commitment(sample, final_tokens)
        self.grow(sample, cached_tokens)
        self.used_slot_units -= self.memory.running_slot_units - SLOT_UNITS
        self.idle[sample] = None
        self.nodes[sample] = self.nodes.get(sample, 0) + 2
        self.tree_nodes += 2

    def make_room(self) -> None:
        """Evict idle entries, least recently used first, until both pools are within their size."""
        while self.idle and (
            self.used_pages > self.memory.pages or self.used_slot_units > self.memory.slot_units
        ):
            sample = next((one for one in self.idle if not self.is_live(one)), next(iter(self.idle)))
            del self.idle[sample]
            self._evict(sample)

    def release(self, sample: int) -> None:
        """Free what an idle entry holds, if there is one."""
        if sample in self.idle:
            del self.idle[sample]
            self._drop(sample)

    def has_room_beside_live(self, sample: int, final_tokens: int) -> bool:
        """Whether one without an entry can start, and all who run finish, beside live ones whose KV grows."""
        live = [one for one in self.idle if self.is_live(one)]
        live_pages = sum(self.own_pages(one, self.tokens[one]) for one in live)
        free_slot_units = self.memory.slot_units - self.used_slot_units
        return (
            self.committed_pages + self._commitment(sample, final_tokens) + KV_GROWTH * live_pages
            <= self.memory.pages
            and free_slot_units + (len(self.idle) - len(live)) * SLOT_UNITS >= self.memory.running_slot_units
        )

    def _evict(self, sample: int) -> None:
        self._drop(sample)
        self.evictions += 1
        self.evicted(sample)

    def _drop(self, sample: int) -> None:
        self.used_pages -= self.own_pages(sample, self.tokens.pop(sample))
        self.used_slot_units -= SLOT_UNITS
        group = self.group[sample]
        self.group_entries[group] -= 1
        if self.group_entries[group] == 0:
            self.used_pages -= self.shared_pages(sample)
        self.tree_nodes -= self.nodes.pop(sample)

    def _commitment(self, sample: int, final_tokens: int) -> int:
        shared = 0 if self.group_running.get(self.group[sample], 0) else self.shared_pages(sample)
        return self.own_pages(sample, final_tokens) + shared
