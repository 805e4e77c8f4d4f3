// Describes a machine and a build, which is needed to compare figures.
#ifndef TESTS_BENCH_MACHINE_H_
#define TESTS_BENCH_MACHINE_H_

#include "nlohmann/json.hpp"

namespace djinn::bench {

// Returns the processor, the number of cores that this process may use, the
// memory and the kernel.
nlohmann::json DescribeMachine();

// Returns the versions of the libraries and the compiler, and the options of
// this build.
nlohmann::json DescribeVersions();

// Returns the load averages over 1, 5 and 15 minutes. If they are above 0
// before a run, other programs are running.
nlohmann::json LoadAverages();

}  // namespace djinn::bench

#endif  // TESTS_BENCH_MACHINE_H_
