# cython: boundscheck=False, wraparound=False, cdivision=True
"""One worker's cache: KV pages and recurrent-state slots, least recently used eviction."""

from coresched.lab.simulator.memory import SLOT_UNITS

cdef long long ABSENT = -1


cdef class CachePools:
    """An entry is one trajectory: its KV tokens and its last state, usable only together and evicted together.

    An idle entry holds one state slot and is evictable; a running one holds ``running_slot_units``. The shared
    prefix of a group is stored once while any entry of the group is present.
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
        cdef long long group
        while self.used_pages > self.pages or self.used_slot_units > self.slot_units:
            sample = self.newer[sentinel]
            if sample == sentinel:
                return
            self.unlink(sample)
            self.used_pages -= self.own_pages(sample, self.tokens[sample])
            self.tokens[sample] = ABSENT
            self.used_slot_units -= self.idle_slot_units
            group = self.columns.group[sample]
            self.group_entries[group] -= 1
            if self.group_entries[group] == 0:
                self.used_pages -= self.shared_pages(sample)
            self.tree_nodes -= self.nodes[sample]
            self.nodes[sample] = 0
            self.evictions += 1

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

    cdef void unlink(self, int sample) noexcept:
        self.newer[self.older[sample]] = self.newer[sample]
        self.older[self.newer[sample]] = self.older[sample]
        self.idle[sample] = 0
