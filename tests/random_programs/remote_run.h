// Executes a program on a remote device and compares it with what the oracle
// expects.
#ifndef TESTS_RANDOM_PROGRAMS_REMOTE_RUN_H_
#define TESTS_RANDOM_PROGRAMS_REMOTE_RUN_H_

#include <cstddef>
#include <cstdint>
#include <functional>
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
  // If set, called before each step with its number, by the step's thread. It
  // may kill the worker. What failed may then fail once more, with another id,
  // or be right, if the program overwrote it.
  std::function<void(size_t)> before_step;
};

// Adds up what happened in the programs that were compared.
struct Tally {
  // The number of values that differed from the CPU's within the tolerance of
  // fast mode, and the number of programs whose remaining steps were skipped.
  uint64_t other_sums = 0;
  uint64_t left_out = 0;
  // The number of calls of registered callables, and of those that were
  // replays. Among the replays, the number with callables that have parameters,
  // and the number that may have left gradients.
  uint64_t calls = 0;
  uint64_t replays = 0;
  uint64_t replays_with_parameters = 0;
  uint64_t replays_with_gradients = 0;
};

// Runs the steps of each lane in a thread of its own. A step waits only for
// earlier steps of other lanes that use the same resource, if one of the two
// steps writes it. Returns the first difference that it finds, as text. A
// session must be open. If `same_messages` is false, errors may differ in their
// text, because a call with two mistakes may report either.
//
// In fast mode, sums may have another order, and whatever may follow from the
// order is not a difference. If it may lead to other calls, the remaining steps
// are skipped. Restores the execution mode.
std::optional<std::string> FindDifference(
    const Program& program, const std::vector<Expectation>& expectations,
    const std::vector<FinalValue>& final_values, const Comparison& comparison,
    Tally* tally);

}  // namespace djinn::random_programs

#endif  // TESTS_RANDOM_PROGRAMS_REMOTE_RUN_H_
