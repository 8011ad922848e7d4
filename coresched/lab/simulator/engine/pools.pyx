# cython: boundscheck=False, wraparound=False, cdivision=True
"""One worker's cache: KV pages and recurrent-state slots, least recently used eviction."""

from libc.limits cimport LLONG_MAX

from coresched.core.guard import KV_GROWTH
from coresched.lab.simulator.memory import SLOT_UNITS

cdef long long ABSENT = -1
cdef double kv_growth = KV_GROWTH


cdef class CachePools:
    """An entry is one trajectory: its KV tokens and its last state, usable only together and evicted together.

    An idle entry holds one state slot and is evictable; a running one holds ``running_slot_units``. The shared
    prefix of a group is stored once while any entry of the group is present.

    Under routing-residency's guard idle entries are live that went idle at ``spared_since`` or later, or that a
    request waits for. No live entry is evicted while there are others.
    """

    def __init__(self, Columns columns, memory):
        cdef int samples = columns.samples
        self.columns = columns
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

    cdef void touch(self, int sample) noexcept:
        if self.idle[sample]:
            self.unlink(sample)
            self.link_newest(sample)

    cdef bint fits(self, int sample, long long final_tokens) noexcept:
        """Whether all running requests can finish beside this one without losing a page."""
        return self.committed_pages + self.commitment(sample, final_tokens) <= self.pages

    cdef void start(self, int sample, long long final_tokens) noexcept:
        """Lock the entry, or make an empty one, for a request that will end with ``final_tokens``."""
        cdef long long group = self.columns.group[sample]
        self.committed_pages += self.commitment(sample, final_tokens)
        self.group_running[group] += 1
        if self.idle[sample]:
            self.unlink(sample)
            self.used_slot_units += self.running_slot_units - self.idle_slot_units
        else:
            self.tokens[sample] = 0
            self.used_slot_units += self.running_slot_units
            if self.group_entries[group] == 0:
                self.used_pages += self.shared_pages(sample)
            self.group_entries[group] += 1

    cdef void grow(self, int sample, long long tokens) noexcept:
        """The running entry now holds ``tokens``."""
        self.used_pages += self.own_pages(sample, tokens) - self.own_pages(sample, self.tokens[sample])
        self.tokens[sample] = tokens

    cdef void finish(self, int sample, long long final_tokens, long long cached_tokens) noexcept:
        """Unlock the entry; what the next turn cannot use is freed, the rest is the most recently used entry."""
        self.group_running[self.columns.group[sample]] -= 1
        self.committed_pages -= self.commitment(sample, final_tokens)
        self.grow(sample, cached_tokens)
        self.used_slot_units -= self.running_slot_units - self.idle_slot_units
        self.link_newest(sample)
        self.nodes[sample] += 2
        self.tree_nodes += 2

    cdef void make_room(self) noexcept:
        """Evict idle entries, least recently used first, until both pools are within their size."""
        cdef int sentinel = self.columns.samples
        cdef int sample
        while self.used_pages > self.pages or self.used_slot_units > self.slot_units:
            sample = self.victim()
            if sample == sentinel:
                return
            self.drop(sample)
            self.evictions += 1
            if self.tells_losses:
                self.lost.push_back(sample)

    cdef int victim(self) noexcept:
        """The idle entry to evict next, or the sentinel."""
        cdef int sentinel = self.columns.samples, first = self.newer[sentinel]
        cdef int sample = first
        while sample != sentinel and self.idle_since[sample] < self.spared_since:
            if not self.awaited[sample]:
                return sample
            sample = self.newer[sample]
        return first  # all are live: those that come later in the list went idle later

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
