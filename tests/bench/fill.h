// Bytes that differ from seed to seed everywhere, for transfers to carry.
#ifndef TESTS_BENCH_FILL_H_
#define TESTS_BENCH_FILL_H_

#include <cstddef>
#include <cstdint>

namespace djinn::bench {

// Fills `size` bytes, a multiple of 8.
void Fill(uint64_t seed, void* bytes, size_t size);

// Whether Fill(seed) would give these bytes.
bool IsFilled(uint64_t seed, const void* bytes, size_t size);

}  // namespace djinn::bench

#endif  // TESTS_BENCH_FILL_H_
