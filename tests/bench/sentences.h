// Sentences of a wanted length, other ones every time.
#ifndef TESTS_BENCH_SENTENCES_H_
#define TESTS_BENCH_SENTENCES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace djinn::bench {

// The same for the same seed. Each sentence has at least `words` tokens, so
// that an encoder which cuts off there sees exactly as many.
std::vector<std::string> MakeSentences(uint64_t seed, size_t sentences,
                                       size_t words);

}  // namespace djinn::bench

#endif  // TESTS_BENCH_SENTENCES_H_
