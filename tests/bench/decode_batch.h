// The decode_batch benchmark, and its part that runs in processes of its own.
#ifndef TESTS_BENCH_DECODE_BATCH_H_
#define TESTS_BENCH_DECODE_BATCH_H_

#include <memory>

#include "tests/bench/benchmark.h"

namespace djinn::bench {

// The argument before those of DecodeSession().
inline constexpr char kDecode[] = "--decode_session";

// COORDINATOR TOKEN_FILE LAYERS: connects, brings the decoder to the device in
// fast mode and says "ready". Then, for every line "PROMPT TOKENS" of its
// input, takes a prompt of so many tokens, says "prompt"; and for the next line
// generates, reading each token, and says in a line how many seconds each took,
// and what they were. Returns the exit status.
int DecodeSession(int argc, char** argv);

std::unique_ptr<Benchmark> MakeDecodeBatch(const Options& options);

}  // namespace djinn::bench

#endif  // TESTS_BENCH_DECODE_BATCH_H_
