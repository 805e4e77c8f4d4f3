// Carries out a program on a remote device and compares it with what the oracle
// expects.
#ifndef TESTS_RANDOM_PROGRAMS_REMOTE_RUN_H_
#define TESTS_RANDOM_PROGRAMS_REMOTE_RUN_H_

#include <optional>
#include <string>
#include <vector>

#include "tests/random_programs/oracle.h"
#include "tests/random_programs/program.h"

namespace djinn::random_programs {

// Runs the steps of each lane in a thread of its own. A step waits for those
// before it in other lanes that touch what it touches, one of them writing, and
// for nothing else. Returns the first difference found, in words. A session
// must be open.
std::optional<std::string> FindDifference(
    const Program& program, const std::vector<Expectation>& expectations,
    const std::vector<FinalValue>& final_values);

}  // namespace djinn::random_programs

#endif  // TESTS_RANDOM_PROGRAMS_REMOTE_RUN_H_
