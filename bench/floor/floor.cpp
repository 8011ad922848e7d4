// The least that each kind of scheduling decision takes, in C++ without Python: what the core is held beside.
//
// One hash and one binary search for a route, one comparison sort for an order, one sift down and one up for
// the environment queue. Each call does that many operations and leaves its state as large as it found it.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#endif

#include "murmur3.h"

namespace {

struct Search {
    const char* const* labels;
    const size_t* sizes;
    size_t count;
    const uint64_t* positions;  // ascending
    size_t points;
    size_t next;
    uint64_t found;  // what was found is summed up, so that no search is left out by the compiler
};

struct PrefixKey {
    int64_t rank;
    double queued_at;
    int64_t item;
    bool operator<(const PrefixKey& other) const {
        return rank != other.rank ? rank < other.rank : queued_at < other.queued_at;
    }
};

struct ChainKey {
    double band;
    int64_t negated_turns;
    double bucket;
    int64_t sequence;
    bool operator<(const ChainKey& other) const {  // of a heap whose head is the least key
        if (band != other.band) return other.band < band;
        if (negated_turns != other.negated_turns) return other.negated_turns < negated_turns;
        if (bucket != other.bucket) return other.bucket < bucket;
        return other.sequence < sequence;
    }
};

struct Stage {
    int64_t turns;
    double mean_s;
};

std::vector<PrefixKey> sorted_keys;

ChainKey key_of(const Stage* stages, size_t stage_count, int64_t* entered) {
    const Stage& stage = stages[*entered % stage_count];
    double requested_at = 0.3 * static_cast<double>(*entered + 1);
    return {std::floor(requested_at / 30.0), -stage.turns, std::floor(stage.mean_s), (*entered)++};
}

}  // namespace

extern "C" {

void floor_search(Search* search, size_t operations) {
    for (; operations > 0; --operations) {
        uint64_t position =
            coresched::murmur3(search->labels[search->next], search->sizes[search->next], 1);
        const uint64_t* end = search->positions + search->points;
        const uint64_t* point = std::lower_bound(search->positions, end, position);
        search->found += point == end ? search->positions[0] : *point;
        if (++search->next == search->count) search->next = 0;
    }
}

int64_t floor_sort(const PrefixKey* keys, size_t count, size_t operations) {
    int64_t first = 0;
    for (; operations > 0; --operations) {
        sorted_keys.assign(keys, keys + count);
        std::sort(sorted_keys.begin(), sorted_keys.end());
        first += sorted_keys.front().item;
    }
    return first;
}

// As many stages join an empty heap; `entered` counts the stages so far.
void floor_fill(ChainKey* heap, size_t count, const Stage* stages, size_t stage_count, int64_t* entered) {
    for (size_t place = 0; place < count; ++place) {
        heap[place] = key_of(stages, stage_count, entered);
        std::push_heap(heap, heap + place + 1);
    }
}

// The head leaves the heap and the next stage joins.
void floor_sift(ChainKey* heap, size_t count, const Stage* stages, size_t stage_count, int64_t* entered,
                size_t operations) {
    for (; operations > 0; --operations) {
        std::pop_heap(heap, heap + count);
        heap[count - 1] = key_of(stages, stage_count, entered);
        std::push_heap(heap, heap + count);
    }
}

// Under callgrind, instructions are counted while this runs and at no other time, and then dumped.
int floor_counted(void (*action)()) {
#if __has_include(<valgrind/callgrind.h>)
    CALLGRIND_TOGGLE_COLLECT;
    action();
    CALLGRIND_TOGGLE_COLLECT;
    CALLGRIND_DUMP_STATS;
    return 1;
#else
    return 0;
#endif
}
}
