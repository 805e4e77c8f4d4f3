// What must be known about a machine and a build to compare figures.
#ifndef TESTS_BENCH_MACHINE_H_
#define TESTS_BENCH_MACHINE_H_

#include "nlohmann/json.hpp"

namespace djinn::bench {

// Processor, cores this process may use, memory, kernel.
nlohmann::json DescribeMachine();

// Of the libraries in use, the compiler and how this was built.
nlohmann::json DescribeVersions();

// Load averages over 1, 5 and 15 minutes: above 0 before a run means batch.
nlohmann::json LoadAverages();

}  // namespace djinn::bench

#endif  // TESTS_BENCH_MACHINE_H_
