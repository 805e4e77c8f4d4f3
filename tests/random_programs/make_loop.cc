#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "tests/random_programs/makers.h"

namespace djinn::random_programs {
namespace {

using Value = c10::IValue;

constexpr size_t kMaxBodySteps = 14;
constexpr size_t kMaxOutputs = 6;

// A body's first time around, which is part of the program.
struct Body {
  std::vector<Step> steps;
  // What it uses and does not make, and what it makes.
  std::set<int> used;
  std::vector<int> made;
  // By what it used: what takes its place the next time.
  std::map<int, int> carried;
  // Read each time, unless kNoTensor.
  int read = kNoTensor;
};

// Which number of a step changes from one time to the next.
using Number = std::pair<size_t, size_t>;  // step, argument

// Grows by a row each time, as a cache does.
void MakeGrowth(Composer& c, Body* body) {
  const auto grown = c.Pick([](const at::Tensor& t) {
    return t.dim() > 0 && t.numel() > 0 && t.numel() <= 60;
  });
  if (!grown.has_value()) return;
  const int64_t dim = c.Int(0, c.tensor(*grown).dim() - 1);
  const int longer = c.Call(
      "cat", {SlotList{{*grown, c.Call("narrow", {Slot{*grown}, Value(dim),
                                                  Value(0), Value(1)})}},
              Value(dim)});
  if (longer != kNoTensor) body->carried[*grown] = longer;
}

// A product with a weight that stays, large enough that a worker may pack it.
void MakeLayer(Composer& c, int weight, Body* body, int input) {
  const int product = c.Call("linear", {Slot{input}, Slot{weight}});
  if (product == kNoTensor) return;
  const int next = c.Call("tanh", {Slot{product}});
  if (next != kNoTensor) body->carried[input] = next;
}

void MakeAnything(Composer& c) {
  switch (c.Int(0, 11)) {
    case 0:
    case 1:
    case 2:
      return MakeElementwise(c);
    case 3:
      return MakeUnary(c);
    case 4:
      return MakeMatmul(c);
    case 5:
      return MakeNetwork(c);
    case 6:
      return MakeReduction(c);
    case 7:
      return MakeView(c);
    case 8:
      return MakeIndexing(c);
    case 9:
      return MakeCopy(c);
    case 10:
      return MakeFactory(c);
    default:
      return c.Chance(0.5) ? MakeRandomDraw(c) : MakeOrdering(c);
  }
}

bool Repeats(const Step& step) {
  return step.kind == Step::Kind::kCall || step.kind == Step::Kind::kUpload;
}

// What it made in place of something it used, of the same kind.
void CarryOver(Composer& c, Body* body) {
  for (const int made : body->made) {
    if (!c.alive(made) || !c.Chance(0.3)) continue;
    for (const int used : body->used) {
      if (!c.alive(used) || body->carried.contains(used)) continue;
      if (c.tensor(used).sizes() != c.tensor(made).sizes() ||
          c.tensor(used).scalar_type() != c.tensor(made).scalar_type()) {
        continue;
      }
      body->carried[used] = made;
      break;
    }
  }
}

Body MakeBody(Composer& c) {
  Body body;
  int weight = kNoTensor, input = kNoTensor;
  if (c.Chance(0.3)) {
    const int64_t width = 16 * c.Int(2, 5);
    // Small, so that a rounding does not grow from one time to the next.
    weight = c.Upload(c.Values(at::kFloat, {width, width}).mul(0.03));
    input = c.Upload(c.Values(at::kFloat, {c.Int(1, 5), width}));
  }
  const size_t begin = c.steps().size();
  if (weight != kNoTensor && input != kNoTensor) {
    MakeLayer(c, weight, &body, input);
  }
  if (c.Chance(0.4)) MakeGrowth(c, &body);
  const size_t enough = begin + c.Int(2, 6);
  for (int i = 0; i < 8 && c.steps().size() < enough; ++i) MakeAnything(c);
  for (size_t i = begin; i < c.steps().size(); ++i) {
    const Step& step = c.steps()[i];
    if (!Repeats(step) || body.steps.size() == kMaxBodySteps) continue;
    for (const int slot : SlotsOf(step)) {
      if (std::find(body.made.begin(), body.made.end(), slot) ==
          body.made.end()) {
        body.used.insert(slot);
      }
    }
    body.made.insert(body.made.end(), step.results.begin(), step.results.end());
    body.steps.push_back(step);
  }
  CarryOver(c, &body);
  if (!body.made.empty() && c.Chance(0.5)) body.read = c.OneOf(body.made);
  return body;
}

// Numbers, and bounds and sizes along a dimension.
bool IsNumber(const Step& step, size_t argument) {
  if (step.kind != Step::Kind::kCall) return false;
  const auto* value = std::get_if<c10::IValue>(&step.arguments[argument]);
  if (value == nullptr) return false;
  const c10::Argument& formal = step.op->schema().arguments()[argument];
  if (value->isIntList()) return formal.name() == "size";
  static const std::set<std::string> kNames = {"self", "other", "alpha",
                                               "beta", "value", "start",
                                               "end",  "index", "length"};
  return (value->isInt() || value->isDouble()) &&
         kNames.contains(formal.name());
}

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

Value Changed(const Value& value, int time) {
  if (value.isDouble()) return Value(value.toDouble() + 0.375 * time);
  if (value.isInt()) return Value(value.toInt() + time);
  std::vector<int64_t> sizes = value.toIntVector();
  if (!sizes.empty() && sizes[0] > 0) sizes[0] += time;
  return Value(std::move(sizes));
}

// Other elements of the same range, as indices must be.
at::Tensor Other(Composer& c, const at::Tensor& values) {
  if (values.is_floating_point()) {
    return c.Values(values.scalar_type(), values.sizes());
  }
  return values.roll({c.Int(0, 3)});
}

// The step over the slots of another time; false when one is missing.
bool Rename(const std::map<int, int>& slots, Step* step) {
  const auto rename = [&](int* slot) {
    const auto other = slots.find(*slot);
    if (other != slots.end()) *slot = other->second;
    return *slot != kNoTensor;
  };
  for (Argument& argument : step->arguments) {
    if (auto* slot = std::get_if<Slot>(&argument)) {
      if (!rename(&slot->index)) return false;
    } else if (auto* list = std::get_if<SlotList>(&argument)) {
      for (int& index : list->indices) {
        if (index != kNoTensor && !rename(&index)) return false;
      }
    }
  }
  return true;
}

// What comes in place of what the body used, after a time whose slots these
// are.
void Advance(Composer& c, const Body& body, std::map<int, int>* slots) {
  std::map<int, int> next;
  for (const auto& [used, made] : body.carried) {
    const auto found = slots->find(made);
    const int slot = found == slots->end() ? made : found->second;
    const auto before = slots->find(used);
    next[used] = slot != kNoTensor && c.alive(slot) ? slot
                 : before == slots->end()           ? used
                                                    : before->second;
  }
  *slots = std::move(next);
}

void DropMade(Composer& c, const std::vector<int>& made,
              const std::map<int, int>& slots) {
  for (const int slot : made) {
    const bool kept =
        std::any_of(slots.begin(), slots.end(),
                    [&](const auto& entry) { return entry.second == slot; });
    if (slot != kNoTensor && c.alive(slot) && !kept) c.Drop(slot);
  }
}

void Read(Composer& c, const Body& body, const std::map<int, int>& slots) {
  if (body.read == kNoTensor) return;
  const auto found = slots.find(body.read);
  const int slot = found == slots.end() ? body.read : found->second;
  if (slot == kNoTensor || !c.alive(slot)) return;
  Step read;
  read.kind = Step::Kind::kRead;
  read.arguments = {Slot{slot}};
  c.Add(std::move(read));
}

void Unroll(Composer& c, const Body& body, int times) {
  const std::vector<Number> numbers = PickNumbers(c, body);
  std::map<int, int> slots;
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
    Read(c, body, slots);
    std::map<int, int> kept = slots;
    Advance(c, body, &kept);
    if (time + 1 < times) DropMade(c, made, kept);
  }
}

// Uploads are left to who calls it.
bool FitsCallable(Composer& c, const Body& body, size_t begin) {
  if (c.profile().gradients || c.profile().failures || body.steps.empty()) {
    return false;
  }
  for (size_t i = begin; i < c.steps().size(); ++i) {
    if (!c.done(i)) return false;
  }
  return true;
}

void CallAgain(Composer& c, const Body& body, int times) {
  auto callable = std::make_shared<Callable>();
  callable->id = c.NextCallable();
  std::vector<int> arguments;  // as the first time had them
  std::map<int, int> inside;
  const auto take = [&](int slot) {
    inside[slot] = static_cast<int>(arguments.size());
    arguments.push_back(slot);
  };
  for (const int slot : body.used) take(slot);
  std::vector<Step> uploads;
  for (const Step& step : body.steps) {
    if (step.kind != Step::Kind::kUpload) continue;
    uploads.push_back(step);
    take(step.results[0]);
  }
  callable->arguments = callable->slots = static_cast<int>(arguments.size());
  std::vector<int> outputs;  // as the first time had them
  for (const Step& step : body.steps) {
    if (step.kind == Step::Kind::kUpload) continue;
    Step inner = step;
    if (!Rename(inside, &inner)) return;
    for (size_t i = 0; i < step.results.size(); ++i) {
      inner.results[i] = inside[step.results[i]] = callable->slots++;
      const bool wanted = step.results[i] == body.read ||
                          std::any_of(body.carried.begin(), body.carried.end(),
                                      [&](const auto& entry) {
                                        return entry.second == step.results[i];
                                      });
      if ((wanted || c.Chance(0.4)) && outputs.size() < kMaxOutputs) {
        outputs.push_back(step.results[i]);
        callable->outputs.push_back(inner.results[i]);
      }
    }
    callable->steps.push_back(std::move(inner));
  }
  if (callable->steps.empty() || arguments.empty() || outputs.empty()) return;

  std::map<int, int> slots;
  for (int time = 1; time < times; ++time) {
    Advance(c, body, &slots);
    std::vector<int> made;
    for (const Step& upload : uploads) {
      const auto& value = std::get<c10::IValue>(upload.arguments[0]);
      made.push_back(c.Upload(Other(c, value.toTensor())));
      slots[upload.results[0]] = made.back();
    }
    Step step;
    step.kind = Step::Kind::kCallable;
    step.callable = callable;
    step.arguments = {SlotList{arguments}};
    for (const int output : outputs) slots[output] = kNoTensor;
    std::map<int, int> given = slots;
    for (const int output : outputs) given.erase(output);
    if (!Rename(given, &step)) return;
    const std::vector<int> results = c.AddStep(std::move(step));
    for (size_t i = 0; i < results.size(); ++i) {
      slots[outputs[i]] = results[i];
      made.push_back(results[i]);
    }
    Read(c, body, slots);
    std::map<int, int> kept = slots;
    Advance(c, body, &kept);
    if (time + 1 < times) DropMade(c, made, kept);
  }
}

}  // namespace

void MakeLoop(Composer& c) {
  const size_t begin = c.steps().size();
  const Body body = MakeBody(c);
  if (body.steps.empty()) return;
  const int times =
      static_cast<int>(c.Chance(0.3) ? c.Int(20, 40) : c.Int(3, 12));
  if (FitsCallable(c, body, begin) && c.Chance(0.6)) {
    CallAgain(c, body, times);
  } else {
    Unroll(c, body, times);
  }
}

}  // namespace djinn::random_programs
