// Executes a program on a remote device and compares it with what the oracle
// expects.
#ifndef TESTS_RANDOM_PROGRAMS_REMOTE_RUN_H_
#define TESTS_RANDOM_PROGRAMS_REMOTE_RUN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "djinn/execution_mode.h"
#include "tests/random_programs/oracle.h"
#include "tests/random_programs/program.h"

namespace djinn::random_programs {

struct Comparison {
  // The mode in which the program begins.
  ExecutionMode mode = ExecutionMode::kStrict;
  bool same_messages = false;
};

// Adds up what happened in the programs that were compared.
struct Tally {
  // Values that differed from the CPU's within the tolerance of fast mode, and
  // programs whose remaining steps were skipped.
  uint64_t other_sums = 0;
  uint64_t left_out = 0;
  // Calls of registered callables, those that were replays, and among the
  // replays those of callables with parameters and those that may have left
  // gradients.
  uint64_t calls = 0;
  uint64_t replays = 0;
  uint64_t replays_with_parameters = 0;
  uint64_t replays_with_gradients = 0;
};

// Runs the steps of each lane in a thread of its own. A step waits only for
// earlier steps in other lanes that touch the same resources, if one of the two
// writes. Returns the first difference found, in words. A session must be open.
// Unless `same_messages` is set, it suffices that PyTorch raises at the same
// step, because a call with two mistakes may report either.
//
// In fast mode sums may be taken in another order, and what may follow from
// that is no difference. If other calls may follow from it, the rest of the
// program is skipped. Leaves the execution mode as it was.
std::optional<std::string> FindDifference(
    const Program& program, const std::vector<Expectation>& expectations,
    const std::vector<FinalValue>& final_values, const Comparison& comparison,
    Tally* tally);

}  // namespace djinn::random_programs

#endif  // TESTS_RANDOM_PROGRAMS_REMOTE_RUN_H_
