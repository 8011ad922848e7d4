"""One worker's cache: KV pages and recurrent-state slots, and which entries they give up."""

from collections import OrderedDict
from collections.abc import Callable

from coresched.core.guard import KV_GROWTH
from coresched.lab.simulator.evictions.eviction import Eviction
from coresched.lab.simulator.memory import SLOT_UNITS, Memory
from coresched.lab.simulator.workload import RequestColumns


class CachePools:
    """An entry is one trajectory: its KV tokens and its last state, usable and evicted only together.

    An idle entry holds one state slot and is evictable; a running one holds ``running_slot_units``. The
    shared prefix of a group is stored once while any entry of the group is present. Evicted is the least
    recently used one, or what ``eviction`` chooses; one that is not ``is_live`` while there are such.
    ``evicted(sample)`` is told of each.

    Where capacity may move between the pools (avmp: codepawl/cachepawl, docs/designs/0002): when one pool
    has no room and the other has more than 30% free, a slot's worth of memory goes over, and only else an
    entry is evicted. Simplified: the batch that goes over is one slot both ways, so that none is lost to
    rounding. A pool keeps what the running requests will need at their ends. Its code has since come to evict
    one entry first and then to move whatever is free; this is its design, which does not.
    """

    def __init__(self, workload: RequestColumns, memory: Memory, eviction: Eviction | None = None) -> None:
        self.memory = memory
        self.eviction = eviction
        self.pages = memory.pages
        self.slot_units = memory.slot_units
        self.moved_slots = 0
        self.running = 0
        self.now_s = 0.0
        """Set by the worker: the time of what follows."""
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
            if self.eviction is not None:
                self.eviction.touched(sample, self.now_s)

    def fits(self, sample: int, final_tokens: int) -> bool:
        """Whether all running requests can finish beside this one without losing a page.

        Where capacity may move, it does so for that.
        """
        while True:
            pages = self.committed_pages + self._commitment(sample, final_tokens)
            if self.memory.slot_tokens is None:
                return pages <= self.pages
            slot_units = (self.running + 1) * self.memory.running_slot_units
            short_of_pages, short_of_slots = pages > self.pages, slot_units > self.slot_units
            if not short_of_pages and not short_of_slots:
                return True
            if short_of_pages and short_of_slots:
                return False
            if self._move(1 if short_of_slots else -1, pages, slot_units):
                continue
            if self.running or not self.idle:
                return False
            self._evict(self._take_victim())

    def queued(self, sample: int) -> None:
        """A turn of the sample waits from now on."""
        if self.eviction is not None:
            self.eviction.queued(sample, self.now_s)

    def start(self, sample: int, final_tokens: int) -> None:
        """Lock the entry, or make an empty one, for a request that will end with ``final_tokens``."""
        self.committed_pages += self._commitment(sample, final_tokens)
        group = self.group[sample]
        self.group_running[group] = self.group_running.get(group, 0) + 1
        self.running += 1
        if self.eviction is not None:
            self.eviction.started(sample, self.now_s)
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
        self.running -= 1
        self.committed_pages -= self._commitment(sample, final_tokens)
        self.grow(sample, cached_tokens)
        self.used_slot_units -= self.memory.running_slot_units - SLOT_UNITS
        self.idle[sample] = None
        self.nodes[sample] = self.nodes.get(sample, 0) + 2
        self.tree_nodes += 2

    def rested(self, sample: int, turn: int) -> None:
        """The turn has ended, and left an entry."""
        if self.eviction is not None:
            self.eviction.rested(sample, turn, self.tokens[sample], self.now_s)

    def make_room(self) -> None:
        """Evict idle entries, or move capacity, until both pools are within their size."""
        while True:
            short_of_pages = self.used_pages > self.pages
            short_of_slots = self.used_slot_units > self.slot_units
            if not short_of_pages and not short_of_slots:
                return
            if self.memory.slot_tokens is not None and short_of_pages != short_of_slots:
                slot_units = self.running * self.memory.running_slot_units
                if self._move(1 if short_of_slots else -1, self.committed_pages, slot_units):
                    continue
            if not self.idle:
                return
            self._evict(self._take_victim())

    def _take_victim(self) -> int:
        entries = [sample for sample in self.idle if not self.is_live(sample)] or list(self.idle)
        sample = entries[0] if self.eviction is None else self.eviction.victim(entries, self.now_s)
        del self.idle[sample]
        return sample

    def _move(self, slots: int, needed_pages: int, needed_slot_units: int) -> bool:
        """Move capacity to the state pool (1 slot) or from it (-1), if the giving pool has it to spare."""
        if slots > 0:
            spare = 10 * (self.pages - self.used_pages) > 3 * self.pages
        else:
            spare = 10 * (self.slot_units - self.used_slot_units) > 3 * self.slot_units
        if not spare:
            return False
        pages, slot_units = self.memory.resized(self.moved_slots + slots)
        if slots > 0 and pages < max(needed_pages, self.used_pages):
            return False
        if slots < 0 and slot_units < max(needed_slot_units, self.used_slot_units):
            return False
        self.moved_slots += slots
        self.pages, self.slot_units = pages, slot_units
        return True

    def release(self, sample: int) -> None:
        """Free what an idle entry holds, if there is one."""
        if sample in self.idle:
            del self.idle[sample]
            self._drop(sample)

    def has_room_beside_live(self, sample: int, final_tokens: int) -> bool:
        """Whether one without an entry can start, and all who run finish, beside live ones whose KV grows."""
        live = [one for one in self.idle if self.is_live(one)]
        live_pages = sum(self.own_pages(one, self.tokens[one]) for one in live)
        free_slot_units = self.slot_units - self.used_slot_units
        return (
            self.committed_pages + self._commitment(sample, final_tokens) + KV_GROWTH * live_pages
            <= self.pages
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
