#include "tests/random_programs/loop_body.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "tests/random_programs/makers.h"

namespace djinn::random_programs {
namespace {

using Value = c10::IValue;

constexpr size_t kMaxBodySteps = 14;

// Adds a tensor that grows by a row each time, as a cache does.
void MakeGrowth(Composer& c, Body* body) {
  const auto grown = c.Pick([](const at::Tensor& t) {
    return t.dim() > 0 && t.numel() > 0 && t.numel() <= 60;
  });
  if (!grown.has_value()) return;
  const int64_t dim = c.Int(0, c.tensor(*grown).dim() - 1);
  const int more =
      c.Call("narrow", {Slot{*grown}, Value(dim), Value(0), Value(1)});
  if (more == kNoTensor) return;
  const int longer = c.Call("cat", {SlotList{{*grown, more}}, Value(dim)});
  if (longer != kNoTensor) body->carried[*grown] = longer;
}

// Adds a product with a weight that does not change. The weight is so large
// that a worker may pack it.
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

// Chooses tensors that the body made, and carries them over to the next
// iteration. They take the place of tensors of the same sizes and type that the
// body used.
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

// Collects the body from the steps that begin at `begin`.
void Collect(Composer& c, size_t begin, Body* body) {
  for (size_t i = begin; i < c.steps().size(); ++i) {
    const Step& step = c.steps()[i];
    if (!Repeats(step) || body->steps.size() == kMaxBodySteps) continue;
    for (const int slot : SlotsOf(step)) {
      if (std::find(body->made.begin(), body->made.end(), slot) ==
          body->made.end()) {
        body->used.insert(slot);
      }
    }
    body->made.insert(body->made.end(), step.results.begin(),
                      step.results.end());
    body->steps.push_back(step);
  }
  CarryOver(c, body);
  if (!body->made.empty() && c.Chance(0.5)) body->read = c.OneOf(body->made);
}

}  // namespace

Body MakeBody(Composer& c) {
  Body body;
  int weight = kNoTensor, input = kNoTensor;
  if (c.Chance(0.3)) {
    const int64_t width = 16 * c.Int(2, 5);
    // The elements are small, so that rounding errors do not grow from one
    // iteration to the next.
    weight = c.Upload(c.Values(at::kFloat, {width, width}).mul(0.03));
    input = c.Upload(c.Values(at::kFloat, {c.Int(1, 5), width}));
  }
  const size_t begin = c.steps().size();
  if (weight != kNoTensor && input != kNoTensor) {
    body.weights = {weight};
    MakeLayer(c, weight, &body, input);
  }
  if (c.Chance(0.4)) MakeGrowth(c, &body);
  const size_t enough = begin + c.Int(2, 6);
  for (int i = 0; i < 8 && c.steps().size() < enough; ++i) MakeAnything(c);
  Collect(c, begin, &body);
  return body;
}

Body MakeLearningBody(Composer& c) {
  Body body;
  const bool wide = c.Chance(0.3);
  const at::ScalarType dtype = wide ? at::kFloat : c.FloatType();
  const int64_t inner = wide ? 16 * c.Int(2, 5) : c.Int(1, 5);
  const int64_t outer = wide ? inner : c.Int(1, 4);
  const double scale = wide ? 0.03 : 0.5;
  const int input = c.Upload(c.Values(dtype, {c.Int(1, 5), inner}));
  const int weight = c.Upload(c.Values(dtype, {outer, inner}).mul(scale));
  const int bias = c.Upload(c.Values(dtype, {outer}));
  if (input == kNoTensor || weight == kNoTensor || bias == kNoTensor) {
    return body;
  }
  body.weights = {weight, bias};
  const size_t begin = c.steps().size();
  int made =
      c.Chance(0.5)
          ? c.Call("linear", {Slot{input}, Slot{weight}, Slot{bias}})
          : c.Call("matmul", {Slot{input}, Slot{c.Call("t", {Slot{weight}})}});
  if (made == kNoTensor) return body;
  if (c.Chance(0.6)) {
    made = c.Call(c.OneOf({"mul.Tensor", "add.Tensor", "maximum"}),
                  {Slot{made}, Slot{bias}});
  }
  if (made != kNoTensor && c.Chance(0.8)) {
    made = c.Call(c.OneOf({"tanh", "relu", "gelu", "silu", "sigmoid", "exp"}),
                  {Slot{made}});
  }
  for (int64_t more = c.Int(0, 2); more > 0; --more) MakeAnything(c);
  if (made == kNoTensor) return body;
  if (c.Chance(0.8))
    c.Call(c.OneOf({"sum", "mean", "norm.Scalar"}), {Slot{made}});
  Collect(c, begin, &body);
  return body;
}

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

Value Changed(const Value& value, int time) {
  if (value.isDouble()) return Value(value.toDouble() + 0.375 * time);
  if (value.isInt()) return Value(value.toInt() + time);
  std::vector<int64_t> sizes = value.toIntVector();
  if (!sizes.empty() && sizes[0] > 0) sizes[0] += time;
  return Value(std::move(sizes));
}

at::Tensor Other(Composer& c, const at::Tensor& values) {
  if (values.is_floating_point()) {
    return c.Values(values.scalar_type(), values.sizes());
  }
  return values.roll({c.Int(0, 3)});
}

int SlotIn(const Renamed& slots, int slot) {
  const auto found = slots.find(slot);
  return found == slots.end() ? slot : found->second;
}

bool Rename(const Renamed& slots, Step* step) {
  const auto rename = [&](int* slot) {
    *slot = SlotIn(slots, *slot);
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

std::set<int> SlotsIn(const Renamed& slots) {
  std::set<int> others;
  for (const auto& [slot, other] : slots) others.insert(other);
  return others;
}

void Advance(Composer& c, const Body& body, Renamed* slots) {
  Renamed next;
  for (const auto& [used, made] : body.carried) {
    const int slot = SlotIn(*slots, made);
    next[used] =
        slot != kNoTensor && c.alive(slot) ? slot : SlotIn(*slots, used);
  }
  *slots = std::move(next);
}

void DropMade(Composer& c, const std::vector<int>& made,
              const std::set<int>& kept) {
  for (const int slot : made) {
    if (slot != kNoTensor && c.alive(slot) && !kept.contains(slot)) {
      c.Drop(slot);
    }
  }
}

void ReadMade(Composer& c, const Body& body, const Renamed& slots) {
  if (body.read == kNoTensor) return;
  const int slot = SlotIn(slots, body.read);
  if (slot == kNoTensor || !c.alive(slot)) return;
  Step read;
  read.kind = Step::Kind::kRead;
  read.arguments = {Slot{slot}};
  c.Add(std::move(read));
}

}  // namespace djinn::random_programs
