// A token and a training step of a program whose worker is far away.
#ifndef TESTS_BENCH_DISTANCE_H_
#define TESTS_BENCH_DISTANCE_H_

#include <memory>

#include "tests/bench/benchmark.h"

namespace djinn::bench {

std::unique_ptr<Benchmark> MakeDistance(const Options& options);

}  // namespace djinn::bench

#endif  // TESTS_BENCH_DISTANCE_H_
