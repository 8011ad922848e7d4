from libcpp.vector cimport vector

from coresched.lab.simulator.engine.columns cimport Columns

cdef class CachePools:
    cdef Columns columns
    cdef long long pages, page_tokens, slot_units, running_slot_units, idle_slot_units
    cdef vector[long long] tokens
    cdef vector[char] idle
    cdef vector[int] older, newer
    cdef vector[int] nodes
    cdef vector[int] group_entries, group_running
    cdef long long idle_entries
    # of routing-residency: what the worker is told, and what it tells
    cdef bint tells_losses
    cdef vector[int] lost              # evicted since the worker last looked
    cdef long long clock               # steps of the engine
    cdef vector[long long] idle_since  # by that clock
    cdef long long spared_since        # idle entries since then are live
    cdef vector[char] awaited          # idle entries for which a request waits are live too
    cdef long long awaited_pages, awaited_entries
    cdef long long used_pages, used_slot_units, committed_pages
    cdef object memory, eviction
    cdef bint movable
    cdef long long moved_slots, running
    cdef double now_s
    cdef readonly long long tree_nodes, evictions

    cdef long long own_pages(self, int sample, long long tokens) noexcept
    cdef long long hit(self, int sample, long long prompt_tokens) noexcept
    cdef int touch(self, int sample) except -1
    cdef int fits(self, int sample, long long final_tokens) except -1
    cdef int start(self, int sample, long long final_tokens) except -1
    cdef void grow(self, int sample, long long tokens) noexcept
    cdef void finish(self, int sample, long long final_tokens, long long cached_tokens) noexcept
    cdef int queued(self, int sample) except -1
    cdef int rested(self, int sample, long long turn) except -1
    cdef int make_room(self) except -1
    cdef int victim(self) except -1
    cdef int move(self, int slots, long long needed_pages, long long needed_slot_units) except -1
    cdef int evict(self, int sample) except -1
    cdef void drop(self, int sample) noexcept
    cdef bint live(self, int sample) noexcept
    cdef void expect(self, int sample) noexcept
    cdef bint has_room_beside_live(self, int sample, long long final_tokens) noexcept
    cdef long long shared_pages(self, int sample) noexcept
    cdef long long commitment(self, int sample, long long final_tokens) noexcept
    cdef void link_newest(self, int sample) noexcept
    cdef void unlink(self, int sample) noexcept
