# cython: boundscheck=False, wraparound=False, cdivision=True
"""One worker's cache: KV pages and recurrent-state slots, and which entries they give up."""

from libc.limits cimport LLONG_MAX

from coresched.core.guard import KV_GROWTH
from coresched.lab.simulator.memory import SLOT_UNITS

cdef long long ABSENT = -1
cdef double kv_growth = KV_GROWTH


cdef class CachePools:
    """An entry is one trajectory: its KV tokens and its last state, usable only together and evicted together.

    An idle entry holds one state slot and is evictable; a running one holds ``running_slot_units``. The shared
    prefix of a group is stored once while any entry of the group is present. Evicted is the least recently used
    one, or what ``eviction`` chooses. Where capacity may move between the pools, it does as the twin tells.

    Under routing-residency's guard idle entries are live that went idle at ``spared_since`` or later, or that a
    request waits for. No live entry is evicted while there are others.
    """

    def __init__(self, Columns columns, memory, eviction):
        cdef int samples = columns.samples
        self.columns = columns
        self.memory = memory
        self.eviction = eviction
        self.movable = memory.slot_tokens is not None
        self.pages = memory.pages
        self.page_tokens = memory.page_tokens
        self.slot_units = memory.slot_units
        self.running_slot_units = memory.running_slot_units
        self.idle_slot_units = SLOT_UNITS
        self.tokens.assign(samples, ABSENT)
        self.idle.assign(samples, 0)
        # The idle list is a ring through a sentinel at index `samples`.
        self.older.assign(samples + 1, samples)
        self.newer.assign(samples + 1, samples)
        self.nodes.assign(samples, 0)
        self.group_entries.assign(columns.groups, 0)
        self.group_running.assign(columns.groups, 0)
        self.idle_since.assign(samples, 0)
        self.awaited.assign(samples, 0)
        self.spared_since = LLONG_MAX

    cdef long long own_pages(self, int sample, long long tokens) noexcept:
        """Pages of ``tokens`` that are not the group's shared prefix."""
        cdef long long own = tokens - self.columns.shared[sample]
        if own <= 0:
            return 0
        if self.page_tokens == 1:
            return own
        return (own + self.page_tokens - 1) // self.page_tokens

    cdef long long shared_pages(self, int sample) noexcept:
        return self.columns.shared[sample] // self.page_tokens

    cdef long long hit(self, int sample, long long prompt_tokens) noexcept:
        """Prompt tokens an idle entry spares; at least the last one is always computed."""
        cdef long long tokens = self.tokens[sample]
        if tokens <= 0:
            return 0
        return tokens if tokens < prompt_tokens else prompt_tokens - 1

    cdef int touch(self, int sample) except -1:
        if self.idle[sample]:
            self.unlink(sample)
            self.link_newest(sample)
            if self.eviction is not None:
                self.eviction.touched(sample, self.now_s)
        return 0

    cdef int fits(self, int sample, long long final_tokens) except -1:
        """Whether all running requests can finish beside this one without losing a page.

        Where capacity may move, it does so for that.
        """
        cdef long long pages, slot_units
        cdef bint short_of_pages, short_of_slots
        while True:
            pages = self.committed_pages + self.commitment(sample, final_tokens)
            if not self.movable:
                return pages <= self.pages
            slot_units = (self.running + 1) * self.running_slot_units
            short_of_pages = pages > self.pages
            short_of_slots = slot_units > self.slot_units
            if not short_of_pages and not short_of_slots:
                return True
            if short_of_pages and short_of_slots:
                return False
            if self.move(1 if short_of_slots else -1, pages, slot_units):
                continue
            if self.running > 0 or self.newer[self.columns.samples] == self.columns.samples:
                return False
            self.evict(self.victim())

    cdef int queued(self, int sample) except -1:
        """A turn of the sample waits from now on."""
        if self.eviction is not None:
            self.eviction.queued(sample, self.now_s)
        return 0

    cdef int start(self, int sample, long long final_tokens) except -1:
        """Lock the entry, or make an empty one, for a request that will end with ``final_tokens``."""
        cdef long long group = self.columns.group[sample]
        self.committed_pages += self.commitment(sample, final_tokens)
        self.group_running[group] += 1
        self.running += 1
        if self.eviction is not None:
            self.eviction.started(sample, self.now_s)
        if self.idle[sample]:
            self.unlink(sample)
            self.used_slot_units += self.running_slot_units - self.idle_slot_units
        else:
            self.tokens[sample] = 0
            self.used_slot_units += self.running_slot_units
            if self.group_entries[group] == 0:
                self.used_pages += self.shared_pages(sample)
            self.group_entries[group] += 1
        return 0

    cdef void grow(self, int sample, long long tokens) noexcept:
        """The running entry now holds ``tokens``."""
        self.used_pages += self.own_pages(sample, tokens) - self.own_pages(sample, self.tokens[sample])
        self.tokens[sample] = tokens

    cdef void finish(self, int sample, long long final_tokens, long long cached_tokens) noexcept:
        """Unlock the entry; what the next turn cannot use is freed, the rest is the most recently used entry."""
        self.group_running[self.columns.group[sample]] -= 1
        self.running -= 1
        self.committed_pages -= self.commitment(sample, final_tokens)
        self.grow(sample, cached_tokens)
        self.used_slot_units -= self.running_slot_units - self.idle_slot_units
        self.link_newest(sample)
        self.nodes[sample] += 2
        self.tree_nodes += 2

    cdef int rested(self, int sample, long long turn) except -1:
        """The turn has ended, and left an entry."""
        if self.eviction is not None:
            self.eviction.rested(sample, turn, self.tokens[sample], self.now_s)
        return 0

    cdef int make_room(self) except -1:
        """Evict idle entries, or move capacity, until both pools are within their size."""
        cdef int sentinel = self.columns.samples
        cdef bint short_of_pages, short_of_slots
        while self.used_pages > self.pages or self.used_slot_units > self.slot_units:
            if self.movable:
                short_of_pages = self.used_pages > self.pages
                short_of_slots = self.used_slot_units > self.slot_units
                if short_of_pages != short_of_slots and self.move(
                    1 if short_of_slots else -1, self.committed_pages, self.running * self.running_slot_units
                ):
                    continue
            if self.newer[sentinel] == sentinel:
                return 0
            self.evict(self.victim())
        return 0

    cdef int victim(self) except -1:
        """Which of the idle entries, of which there is one at least, to evict."""
        cdef int sentinel = self.columns.samples, first = self.newer[sentinel]
        cdef int sample = first
        cdef list idle = [], spare = []
        if self.eviction is None:
            while sample != sentinel and self.idle_since[sample] < self.spared_since:
                if not self.awaited[sample]:
                    return sample
                sample = self.newer[sample]
            return first  # all are live: those that come later in the list went idle later
        while sample != sentinel:
            idle.append(sample)
            if not self.live(sample):
                spare.append(sample)
            sample = self.newer[sample]
        return self.eviction.victim(spare or idle, self.now_s)

    cdef bint live(self, int sample) noexcept:
        return self.awaited[sample] or self.idle_since[sample] >= self.spared_since

    cdef int evict(self, int sample) except -1:
        self.drop(sample)
        self.evictions += 1
        if self.tells_losses:
            self.lost.push_back(sample)
        return 0

    cdef void drop(self, int sample) noexcept:
        """Free what an idle entry holds."""
        cdef long long group = self.columns.group[sample]
        self.unlink(sample)
        self.used_pages -= self.own_pages(sample, self.tokens[sample])
        self.tokens[sample] = ABSENT
        self.used_slot_units -= self.idle_slot_units
        self.group_entries[group] -= 1
        if self.group_entries[group] == 0:
            self.used_pages -= self.shared_pages(sample)
        self.tree_nodes -= self.nodes[sample]
        self.nodes[sample] = 0

    cdef void expect(self, int sample) noexcept:
        """A request waits for the sample's entry, if there is one."""
        if self.idle[sample]:
            self.awaited[sample] = 1
            self.awaited_entries += 1
            self.awaited_pages += self.own_pages(sample, self.tokens[sample])

    cdef bint has_room_beside_live(self, int sample, long long final_tokens) noexcept:
        """Whether one without an entry can start, and all who run finish, beside live ones whose KV grows."""
        cdef int sentinel = self.columns.samples, one = self.older[sentinel]
        cdef long long live_pages = self.awaited_pages, live_entries = self.awaited_entries
        while one != sentinel and self.idle_since[one] >= self.spared_since:
            if not self.awaited[one]:
                live_pages += self.own_pages(one, self.tokens[one])
                live_entries += 1
            one = self.older[one]
        return (
            self.committed_pages + self.commitment(sample, final_tokens) + kv_growth * live_pages <= self.pages
            and self.used_slot_units - (self.idle_entries - live_entries) * self.idle_slot_units
            <= self.slot_units - self.running_slot_units
        )

    cdef int move(self, int slots, long long needed_pages, long long needed_slot_units) except -1:
        """Move capacity to the state pool (1 slot) or from it (-1), if the giving pool has it to spare."""
        cdef bint spare
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
        self.pages = pages
        self.slot_units = slot_units
        return True

    cdef long long commitment(self, int sample, long long final_tokens) noexcept:
        cdef long long pages = self.own_pages(sample, final_tokens)
        if self.group_running[self.columns.group[sample]] == 0:
            pages += self.shared_pages(sample)
        return pages

    cdef void link_newest(self, int sample) noexcept:
        cdef int sentinel = self.columns.samples
        cdef int last = self.older[sentinel]
        self.newer[last] = sample
        self.older[sample] = last
        self.newer[sample] = sentinel
        self.older[sentinel] = sample
        self.idle[sample] = 1
        self.idle_since[sample] = self.clock
        self.idle_entries += 1

    cdef void unlink(self, int sample) noexcept:
        self.newer[self.older[sample]] = self.newer[sample]
        self.older[self.newer[sample]] = self.older[sample]
        self.idle[sample] = 0
        self.idle_entries -= 1
        if self.awaited[sample]:
            self.awaited[sample] = 0
            self.awaited_entries -= 1
            self.awaited_pages -= self.own_pages(sample, self.tokens[sample])
