// Carries out a program on a remote device and compares it with what the oracle
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
  // In which the program begins.
  ExecutionMode mode = ExecutionMode::kStrict;
  bool same_messages = false;
};

// Adds up what happened in the programs that were compared.
struct Tally {
  // Values that were not the CPU's and may be what they were, in fast mode, and
  // programs whose rest was left out.
  uint64_t other_sums = 0;
  uint64_t left_out = 0;
  // Of registered callables: calls, those that were executed as a whole,
  // and of these, those of callables with parameters, and those that may have
  // left gradients.
  uint64_t calls = 0;
  uint64_t replays = 0;
  uint64_t replays_with_parameters = 0;
  uint64_t replays_with_gradients = 0;
};

// Runs the steps of each lane in a thread of its own. A step waits for those
// before it in other lanes that touch what it touches, one of them writing, and
// for nothing else. Returns the first difference found, in words. A session
// must be open. Unless `same_messages`, it is enough that PyTorch raises at the
// same step: where a call has two mistakes, either may be the one it names.
//
// In the steps that are in fast mode sums may be taken in another order, and
// what may come of that is no difference; where other calls may follow from it,
// the rest of the program is left out. Leaves the execution mode as it was.
std::optional<std::string> FindDifference(
    const Program& program, const std::vector<Expectation>& expectations,
    const std::vector<FinalValue>& final_values, const Comparison& comparison,
    Tally* tally);

}  // namespace djinn::random_programs

#endif  // TESTS_RANDOM_PROGRAMS_REMOTE_RUN_H_
