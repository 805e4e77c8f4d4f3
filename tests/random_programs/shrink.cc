#include "tests/random_programs/shrink.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace djinn::random_programs {
namespace {

// Returns the callable without one of its steps and without the outputs of that
// step.
Callable WithoutStep(Callable callable, size_t step,
                     std::vector<size_t>* lost_outputs) {
  const std::vector<int> made = callable.steps[step].results;
  callable.steps.erase(callable.steps.begin() + static_cast<int64_t>(step));
  for (size_t i = callable.outputs.size(); i-- > 0;) {
    if (std::find(made.begin(), made.end(), callable.outputs[i]) ==
        made.end()) {
      continue;
    }
    callable.outputs.erase(callable.outputs.begin() + static_cast<int64_t>(i));
    lost_outputs->push_back(i);
  }
  return callable;
}

// Returns the program with the callable replaced by one without a step.
Program WithoutStepOf(const std::shared_ptr<const Callable>& callable,
                      size_t step, Program program) {
  std::vector<size_t> lost_outputs;  // indices, the last one first
  const auto smaller = std::make_shared<const Callable>(
      WithoutStep(*callable, step, &lost_outputs));
  for (Step& call : program.steps) {
    if (call.callable != callable) continue;
    call.callable = smaller;
    for (const size_t output : lost_outputs) {
      if (output >= call.results.size()) continue;
      call.results.erase(call.results.begin() + static_cast<int64_t>(output));
    }
  }
  return program;
}

// Returns the callable of this number, or null.
std::shared_ptr<const Callable> FindCallable(const Program& program, int id) {
  for (const Step& step : program.steps) {
    if (step.callable != nullptr && step.callable->id == id) {
      return step.callable;
    }
  }
  return nullptr;
}

}  // namespace

Program Shrink(Program program, int attempts,
               const std::function<bool(const Program&)>& fails) {
  const auto keep_if_fails = [&](Program smaller) {
    if (attempts-- <= 0 || !fails(smaller)) return false;
    program = std::move(smaller);
    return true;
  };
  if (program.lanes > 1) {
    Program one_lane = program;
    one_lane.lanes = 1;
    keep_if_fails(std::move(one_lane));
  }
  // Removes stretches of steps, first long ones and then ever shorter ones.
  // Starts from the end, because no other step depends on the last ones.
  for (size_t stretch = std::max<size_t>(program.steps.size() / 2, 1);;) {
    bool smaller_found = false;
    for (size_t end = program.steps.size(); end > 0;) {
      const size_t begin = end - std::min(stretch, end);
      Program smaller = program;
      smaller.steps.erase(smaller.steps.begin() + begin,
                          smaller.steps.begin() + end);
      smaller_found |= keep_if_fails(std::move(smaller));
      end = begin;
    }
    if (attempts <= 0) break;
    if (stretch > 1) {
      stretch /= 2;
    } else if (!smaller_found) {
      break;
    }
  }
  // Removes the steps of callables.
  std::set<int> callables;
  for (const Step& step : program.steps) {
    if (step.callable != nullptr) callables.insert(step.callable->id);
  }
  for (const int id : callables) {
    for (size_t i = FindCallable(program, id)->steps.size(); i-- > 0;) {
      keep_if_fails(WithoutStepOf(FindCallable(program, id), i, program));
    }
  }
  return program;
}

}  // namespace djinn::random_programs
