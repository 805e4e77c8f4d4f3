#include <map>
#include <utility>
#include <vector>

#include "tests/random_programs/loop_body.h"
#include "tests/random_programs/makers.h"

namespace djinn::random_programs {
namespace {

using Value = c10::IValue;

// A number in a step that changes from one time to the next.
using Number = std::pair<size_t, size_t>;  // step, argument

std::vector<Number> PickNumbers(Composer& c, const Body& body) {
  std::vector<Number> numbers;
  for (size_t i = 0; i < body.steps.size(); ++i) {
    for (size_t j = 0; j < body.steps[i].arguments.size(); ++j) {
      if (IsNumber(body.steps[i], j) && c.Chance(0.5))
        numbers.emplace_back(i, j);
    }
  }
  return numbers;
}

void Unroll(Composer& c, const Body& body, int times) {
  const std::vector<Number> numbers = PickNumbers(c, body);
  Renamed slots;
  for (int time = 1; time < times; ++time) {
    Advance(c, body, &slots);
    std::vector<int> made;
    for (size_t i = 0; i < body.steps.size(); ++i) {
      Step step = body.steps[i];
      for (const int slot : step.results) slots[slot] = kNoTensor;
      if (!Rename(slots, &step)) continue;
      for (const auto& [where, argument] : numbers) {
        if (where != i) continue;
        Value& value = std::get<c10::IValue>(step.arguments[argument]);
        value = Changed(value, time);
      }
      if (step.kind == Step::Kind::kUpload) {
        Value& value = std::get<c10::IValue>(step.arguments[0]);
        value = Other(c, value.toTensor());
      }
      step.results.clear();
      const std::vector<int> results = c.AddStep(std::move(step));
      for (size_t j = 0; j < results.size(); ++j) {
        if (j < body.steps[i].results.size()) {
          slots[body.steps[i].results[j]] = results[j];
        }
        made.push_back(results[j]);
      }
    }
    ReadMade(c, body, slots);
    Renamed kept = slots;
    Advance(c, body, &kept);
    if (time + 1 < times) DropMade(c, made, SlotsIn(kept));
  }
}

// Returns whether a callable may do what the body does.
bool FitsCallable(Composer& c, const Body& body, size_t begin) {
  if (c.profile().failures || body.steps.empty()) return false;
  for (size_t i = begin; i < c.steps().size(); ++i) {
    if (!c.done(i)) return false;
  }
  return true;
}

}  // namespace

void MakeLoop(Composer& c) {
  const size_t begin = c.steps().size();
  const Body body = c.Chance(0.4) ? MakeLearningBody(c) : MakeBody(c);
  if (body.steps.empty()) return;
  const int times =
      static_cast<int>(c.Chance(0.3) ? c.Int(20, 40) : c.Int(3, 12));
  if (FitsCallable(c, body, begin) && c.Chance(0.7)) {
    MakeCalls(c, body, times);
  } else {
    Unroll(c, body, times);
  }
}

}  // namespace djinn::random_programs
