// MurmurHash3_x64_128 (Austin Appleby, public domain), of which routing takes the first 64 bits.
//
// The package mmh3 has the same; a call of it costs more than all else that a route does.

#ifndef CORESCHED_MURMUR3_H
#define CORESCHED_MURMUR3_H

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace coresched {

inline uint64_t rotated(uint64_t value, int bits) { return (value << bits) | (value >> (64 - bits)); }

// Little-endian on every machine, as mmh3 reads it.
inline uint64_t word(const unsigned char* bytes) {
    uint64_t value;
    std::memcpy(&value, bytes, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    return value;
}

inline uint64_t tail(const unsigned char* bytes, size_t count) {
    uint64_t value = 0;
    for (size_t place = 0; place < count; ++place) value |= uint64_t(bytes[place]) << (8 * place);
    return value;
}

inline uint64_t finished(uint64_t value) {
    value ^= value >> 33;
    value *= 0xff51afd7ed558ccdULL;
    value ^= value >> 33;
    value *= 0xc4ceb9fe1a85ec53ULL;
    return value ^ (value >> 33);
}

inline uint64_t murmur3(const char* text, size_t size, uint64_t seed) {
    const uint64_t c1 = 0x87c37b91114253d5ULL, c2 = 0x4cf5ad432745937fULL;
    const unsigned char* bytes = reinterpret_cast<const unsigned char*>(text);
    uint64_t h1 = seed, h2 = seed;
    size_t left = size;
    for (; left >= 16; left -= 16, bytes += 16) {
        h1 ^= rotated(word(bytes) * c1, 31) * c2;
        h1 = (rotated(h1, 27) + h2) * 5 + 0x52dce729;
        h2 ^= rotated(word(bytes + 8) * c2, 33) * c1;
        h2 = (rotated(h2, 31) + h1) * 5 + 0x38495ab5;
    }
    if (left > 8) h2 ^= rotated(tail(bytes + 8, left - 8) * c2, 33) * c1;
    if (left > 0) h1 ^= rotated(tail(bytes, left < 8 ? left : 8) * c1, 31) * c2;
    h1 ^= size;
    h2 ^= size;
    h1 += h2;
    h2 += h1;
    return finished(h1) + finished(h2);  // h1 += h2 once both are finished
}

}  // namespace coresched

#endif
