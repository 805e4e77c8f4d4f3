// The interactive benchmark, and its part that runs in a process of its own.
#ifndef TESTS_BENCH_INTERACTIVE_H_
#define TESTS_BENCH_INTERACTIVE_H_

#include <memory>

#include "tests/bench/benchmark.h"

namespace djinn::bench {

// The argument before those of Train().
inline constexpr char kTrain[] = "--train";

// COORDINATOR TOKEN_FILE: connects as a batch session and trains, as fast as it
// can, until its input ends: says "training" when it has begun, and "trained"
// and how much if the losses were those of the same training here, otherwise
// what is wrong. Returns the exit status.
int Train(int argc, char** argv);

std::unique_ptr<Benchmark> MakeInteractive(const Options& options);

}  // namespace djinn::bench

#endif  // TESTS_BENCH_INTERACTIVE_H_
