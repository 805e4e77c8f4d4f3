#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/random_programs/loop_body.h"
#include "tests/random_programs/makers.h"

namespace djinn::random_programs {
namespace {

using Value = c10::IValue;

constexpr size_t kMaxOutputs = 6;
// The rate of an update. It is a power of two, so that the product is exact and
// only the difference is rounded.
constexpr double kRate = 0.125;

Step StepOf(Step::Kind kind, std::vector<Argument> arguments) {
  Step step;
  step.kind = kind;
  step.arguments = std::move(arguments);
  return step;
}

bool MayLearn(const at::Tensor& tensor) {
  return tensor.is_floating_point() && tensor.is_leaf() &&
         !tensor.is_inference();
}

// Makes calls of one callable. Between calls, changes what the calls depend on:
// the tensors to which the callable refers, their elements, the arguments, and
// modes. Undoes some changes later, so that a call equals a much earlier one.
class Calls {
 public:
  Calls(Composer& c, const Body& body) : c_(c), body_(body) {}

  // Builds the callable. Returns false if the body is unsuitable.
  bool Build();
  void Make(int times);

 private:
  struct Parameter {
    // The present tensor, and those that were or may be in its place.
    int slot;
    std::vector<int> others;
  };

  // The following functions build the callable.
  bool AddBodySteps();
  void AddLearning();
  // Adds steps that call no operator but must be executed at every call.
  void AddUnseen();
  void PickAttribute();

  // The following functions make changes between calls.
  void Change();
  void WriteParameter();
  void ReplaceParameter();
  void MoveParameter();
  void AliasParameter();
  void ChangeGradient();
  void VaryArgument();
  // Restores the first values as far as they are still alive.
  void ChangeBack();
  // Returns whether every tensor that a call needs is alive.
  bool Ready();
  // Returns the slots that the next call may use.
  std::set<int> Needed();

  // Adds a call. Returns false if it raised.
  bool Call(std::vector<int>* made);
  void LookAfterwards();

  Parameter& AnyParameter() {
    return parameters_[c_.Int(0, static_cast<int64_t>(parameters_.size()) - 1)];
  }
  int GivenFor(int argument) const {
    const auto found = varied_.find(argument);
    return found != varied_.end() ? found->second : SlotIn(slots_, argument);
  }
  void Require(int slot, bool gradient);
  int Like(int slot);
  std::optional<int> VariantOf(int slot);

  Composer& c_;
  Body body_;
  const std::shared_ptr<Callable> callable_ = std::make_shared<Callable>();
  // Slots and steps of the body's first time.
  std::vector<int> arguments_;
  std::vector<int> outputs_;
  std::vector<Step> uploads_;
  Renamed inside_;
  bool learns_ = false;

  std::vector<Parameter> parameters_;
  std::vector<int> first_parameters_;
  // `slots_` maps slots of the first iteration to those of another iteration,
  // and `varied_` maps them to slots that are passed instead.
  Renamed slots_;
  Renamed varied_;
  std::vector<Value> attributes_;
  size_t attribute_ = 0;
  Mode first_mode_ = Mode::kNormal;
  Mode mode_ = Mode::kNormal;
  bool fast_ = false;
};

bool Calls::Build() {
  callable_->id = c_.NextCallable();
  const bool refers = !body_.weights.empty() || c_.Chance(0.7);
  for (const int slot : body_.used) {
    if (!c_.alive(slot)) return false;
    const double chance = body_.weights.contains(slot)          ? 0.9
                          : c_.tensor(slot).is_floating_point() ? 0.4
                                                                : 0.15;
    if (refers && c_.Chance(chance)) {
      first_parameters_.push_back(slot);
    } else {
      arguments_.push_back(slot);
    }
  }
  for (const Step& step : body_.steps) {
    if (step.kind != Step::Kind::kUpload) continue;
    uploads_.push_back(step);
    arguments_.push_back(step.results[0]);
  }
  for (const std::vector<int>* slots : {&arguments_, &first_parameters_}) {
    for (const int slot : *slots) inside_[slot] = callable_->slots++;
  }
  callable_->arguments = static_cast<int>(arguments_.size());
  callable_->parameters = static_cast<int>(first_parameters_.size());
  callable_->same_parameters = c_.Chance(0.35);
  for (const int slot : first_parameters_) {
    parameters_.push_back({slot, {}});
    // A parameter that is carried over would be another tensor at every call.
    if (c_.Chance(0.8)) body_.carried.erase(slot);
  }
  learns_ =
      !parameters_.empty() && c_.Chance(body_.weights.empty() ? 0.4 : 0.8);
  if (!AddBodySteps()) return false;
  callable_->detached = learns_ ? c_.Chance(0.75) : c_.Chance(0.2);
  if (learns_) AddLearning();
  AddUnseen();
  PickAttribute();
  return callable_->slots > 0 && !outputs_.empty() &&
         !(arguments_.empty() && parameters_.empty());
}

bool Calls::AddBodySteps() {
  const bool any_mode = learns_ || c_.Chance(0.5);
  for (const Step& step : body_.steps) {
    // The caller makes the uploads.
    if (step.kind == Step::Kind::kUpload) continue;
    Step inner = step;
    if (any_mode) inner.mode = Mode::kNormal;
    if (!Rename(inside_, &inner)) return false;
    for (size_t i = 0; i < step.results.size(); ++i) {
      inner.results[i] = inside_[step.results[i]] = callable_->slots++;
      const bool wanted =
          step.results[i] == body_.read ||
          std::any_of(body_.carried.begin(), body_.carried.end(),
                      [&](const auto& entry) {
                        return entry.second == step.results[i];
                      });
      if ((wanted || c_.Chance(0.4)) && outputs_.size() < kMaxOutputs) {
        outputs_.push_back(step.results[i]);
        callable_->outputs.push_back(inner.results[i]);
      }
    }
    callable_->steps.push_back(std::move(inner));
  }
  return !callable_->steps.empty();
}

// Adds a backward pass from a tensor that the body made, and the other steps of
// learning.
void Calls::AddLearning() {
  std::vector<int> roots;
  for (const int slot : body_.made) {
    if (c_.alive(slot) && c_.tensor(slot).is_floating_point() &&
        inside_.at(slot) >= callable_->arguments + callable_->parameters) {
      roots.push_back(inside_.at(slot));
    }
  }
  if (roots.empty()) return;
  const auto for_each = [&](Step::Kind kind, const Value& value) {
    std::vector<Step> steps;
    for (const int slot : first_parameters_) {
      if (!MayLearn(c_.tensor(slot))) continue;
      steps.push_back(StepOf(kind, {Slot{inside_.at(slot)}, value}));
    }
    return steps;
  };
  std::vector<Step>& steps = callable_->steps;
  if (c_.Chance(0.4)) {
    const std::vector<Step> clear =
        for_each(Step::Kind::kClearGrad, Value(c_.Chance(0.5)));
    steps.insert(steps.begin(), clear.begin(), clear.end());
  }
  steps.push_back(
      StepOf(Step::Kind::kLearn,
             {Slot{c_.Chance(0.7) ? roots.back() : c_.OneOf(roots)}}));
  if (c_.Chance(0.4)) {
    const std::vector<Step> update =
        for_each(Step::Kind::kUpdate, Value(kRate));
    steps.insert(steps.end(), update.begin(), update.end());
  }
}

void Calls::AddUnseen() {
  std::vector<Step>& steps = callable_->steps;
  if (c_.Chance(0.06)) {
    const int64_t place = c_.Int(0, static_cast<int64_t>(steps.size()));
    steps.insert(steps.begin() + place,
                 StepOf(Step::Kind::kSeed, {Value(c_.Int(0, 1000))}));
  }
  if (arguments_.empty() || outputs_.empty() || !c_.Chance(0.06)) return;
  const int moved = c_.OneOf(arguments_);
  const int source = c_.OneOf(outputs_);
  if (!c_.alive(moved) || !c_.alive(source) ||
      c_.tensor(moved).scalar_type() != c_.tensor(source).scalar_type() ||
      c_.tensor(moved).is_inference() != c_.tensor(source).is_inference()) {
    return;
  }
  steps.push_back(StepOf(Step::Kind::kSetData,
                         {Slot{inside_.at(moved)}, Slot{inside_.at(source)}}));
}

void Calls::PickAttribute() {
  attributes_ = {Value()};
  if (!c_.Chance(0.5)) return;
  std::vector<Argument*> numbers;
  for (Step& step : callable_->steps) {
    for (size_t i = 0; i < step.arguments.size(); ++i) {
      if (IsNumber(step, i)) numbers.push_back(&step.arguments[i]);
    }
  }
  if (numbers.empty()) return;
  Argument& number = *c_.OneOf(numbers);
  const Value value = std::get<Value>(number);
  attributes_ = {value, Changed(value, static_cast<int>(c_.Int(1, 3)))};
  number = Attribute{};
}

void Calls::Require(int slot, bool gradient) {
  if (!MayLearn(c_.tensor(slot))) return;
  // Skips gradients that are shared; one of the two references is the oracle's.
  // Skips views, because a view becomes part of the graph only when its own
  // graph is asked for, and no replay asks for it.
  if (gradient && c_.tensor(slot).storage().use_count() > 2) return;
  c_.Add(StepOf(Step::Kind::kRequiresGrad, {Slot{slot}, Value(gradient)}));
}

// Makes a new tensor that may replace this one.
int Calls::Like(int slot) {
  const at::Tensor& tensor = c_.tensor(slot);
  std::vector<int64_t> sizes = tensor.sizes().vec();
  at::ScalarType dtype = tensor.scalar_type();
  if (c_.Chance(0.3)) {
    if (sizes.empty() || c_.Chance(0.2)) {
      sizes.insert(sizes.begin(), c_.Int(1, 3));
    } else {
      int64_t& size = sizes[c_.Int(0, static_cast<int64_t>(sizes.size()) - 1)];
      size = c_.Chance(0.5) ? 1 : size + c_.Int(-1, 1);
      size = std::max<int64_t>(size, 0);
    }
  } else if (c_.Chance(0.1)) {
    dtype = c_.DataType();
  }
  at::Tensor values = c_.Values(dtype, sizes);
  if (body_.weights.contains(slot) && values.is_floating_point()) {
    values = values.mul(0.1);
  }
  if (values.dim() >= 2 && c_.Chance(0.1)) {
    values = values.transpose(0, 1).contiguous().transpose(0, 1);
  }
  return c_.Upload(values);
}

void Calls::WriteParameter() {
  const int slot = AnyParameter().slot;
  const bool learns = c_.tensor(slot).requires_grad();
  const Mode before =
      c_.ExchangeMode(c_.Chance(0.1)             ? Mode::kInference
                      : learns || c_.Chance(0.3) ? Mode::kNoGrad
                                                 : Mode::kNormal);
  int written = slot;
  if (c_.tensor(slot).dim() > 0 && c_.tensor(slot).size(0) > 0 &&
      c_.Chance(0.3)) {
    const int part = c_.Call(
        "select.int",
        {Slot{slot}, Value(0), Value(c_.Int(0, c_.tensor(slot).size(0) - 1))});
    if (part != kNoTensor) written = part;
  } else if (c_.Chance(0.2)) {
    const int alias = c_.Call("detach", {Slot{slot}});
    if (alias != kNoTensor) written = alias;
  }
  switch (c_.Int(0, 4)) {
    case 0:
      c_.Call("mul_.Scalar", {Slot{written}, Value(c_.Int(-1, 2))});
      break;
    case 1:
      c_.Call("add_.Scalar", {Slot{written}, Value(c_.Int(1, 3))});
      break;
    case 2:
      c_.Call("fill_.Scalar", {Slot{written}, Value(c_.Int(0, 2))});
      break;
    case 3:
      c_.Call("normal_", {Slot{written}});
      break;
    default:
      c_.Call("copy_",
              {Slot{written}, Value(c_.Values(c_.tensor(written).scalar_type(),
                                              c_.tensor(written).sizes()))});
  }
  if (written != slot && c_.Chance(0.8)) c_.Drop(written);
  c_.ExchangeMode(before);
}

void Calls::ReplaceParameter() {
  Parameter& parameter = AnyParameter();
  if (!parameter.others.empty() && c_.Chance(0.5)) {
    int& other = parameter.others[c_.Int(
        0, static_cast<int64_t>(parameter.others.size()) - 1)];
    if (c_.alive(other)) std::swap(parameter.slot, other);
    return;
  }
  const int replaced = parameter.slot;
  const bool required = c_.tensor(replaced).requires_grad();
  const Mode before = c_.ExchangeMode(Mode::kNoGrad);
  const int slot =
      c_.Chance(0.3) ? c_.Call("clone", {Slot{replaced}}) : Like(replaced);
  c_.ExchangeMode(before);
  if (slot == kNoTensor) return;
  if (required && c_.Chance(0.85)) Require(slot, true);
  parameter.slot = slot;
  // A dropped tensor's memory may be reused for another tensor.
  const bool first =
      std::find(first_parameters_.begin(), first_parameters_.end(), replaced) !=
      first_parameters_.end();
  if (!first && c_.Chance(0.5)) {
    c_.Drop(replaced);
  } else {
    parameter.others.push_back(replaced);
  }
}

// Puts the same tensor into other memory.
void Calls::MoveParameter() {
  Parameter& parameter = AnyParameter();
  const int slot = parameter.slot;
  const Mode before = c_.ExchangeMode(Mode::kNoGrad);
  int source = kNoTensor;
  if (c_.Chance(0.3)) {
    source = AnyParameter().slot;
  } else if (!parameter.others.empty() && c_.Chance(0.6)) {
    source = c_.OneOf(parameter.others);
  } else {
    source = Like(slot);
    if (source != kNoTensor && c_.Chance(0.5)) {
      parameter.others.push_back(source);
    }
  }
  const bool fits =
      source != kNoTensor && source != slot && c_.alive(source) &&
      c_.tensor(source).is_inference() == c_.tensor(slot).is_inference() &&
      c_.tensor(source).scalar_type() == c_.tensor(slot).scalar_type();
  if (c_.Chance(0.15)) {
    c_.Call("resize_", {Slot{slot}, Ints(c_.Sizes())});
  } else if (fits && c_.Chance(0.7)) {
    c_.Add(StepOf(Step::Kind::kSetData, {Slot{slot}, Slot{source}}));
  } else if (fits) {
    c_.Call("set_.source_Tensor", {Slot{slot}, Slot{source}});
  }
  c_.ExchangeMode(before);
}

// Replaces a parameter by a tensor in the memory of another parameter or an
// argument.
void Calls::AliasParameter() {
  Parameter& parameter = AnyParameter();
  const int replaced = parameter.slot;
  int source = AnyParameter().slot;
  if (!arguments_.empty() && c_.Chance(0.3)) {
    source = GivenFor(c_.OneOf(arguments_));
  }
  if (!c_.alive(source)) return;
  const Mode before =
      c_.ExchangeMode(c_.Chance(0.7) ? Mode::kNoGrad : Mode::kNormal);
  int slot = kNoTensor;
  switch (c_.Int(0, 4)) {
    case 0:
      slot = source;
      break;
    case 1:
      slot = c_.Call("alias", {Slot{source}});
      break;
    case 2:
      if (c_.tensor(source).dim() > 0) {
        slot = c_.Call("slice.Tensor", {Slot{source}, Value(0), Value(1)});
      }
      break;
    case 3:
      if (c_.tensor(source).dim() <= 2) slot = c_.Call("t", {Slot{source}});
      break;
    default:
      slot = c_.Call("detach", {Slot{source}});
      if (slot != kNoTensor && c_.Chance(0.5)) Require(slot, true);
  }
  c_.ExchangeMode(before);
  if (slot == kNoTensor || slot == replaced) return;
  parameter.slot = slot;
  parameter.others.push_back(replaced);
}

void Calls::ChangeGradient() {
  const int slot = AnyParameter().slot;
  if (!MayLearn(c_.tensor(slot))) return;
  switch (c_.Int(0, 4)) {
    case 0:
    case 1:
      return Require(slot, !c_.tensor(slot).requires_grad());
    case 2:
    case 3:
      c_.Add(
          StepOf(Step::Kind::kClearGrad, {Slot{slot}, Value(c_.Chance(0.5))}));
      return;
    default:
      c_.Add(StepOf(Step::Kind::kUpdate, {Slot{slot}, Value(kRate)}));
  }
}

// Makes a tensor of another type, shape or layout from this one.
std::optional<int> Calls::VariantOf(int slot) {
  const at::Tensor& tensor = c_.tensor(slot);
  const int64_t dims = tensor.dim();
  const auto size = [&](int64_t dim) { return tensor.size(dim); };
  switch (c_.Int(0, 7)) {
    case 0: {
      static const std::vector<at::ScalarType> kFloats = {
          at::kFloat, at::kDouble, at::kBFloat16};
      static const std::vector<at::ScalarType> kIntegers = {at::kInt,
                                                            at::kLong};
      return c_.Call(
          "to.dtype",
          {Slot{slot}, DataTypeArgument(c_.OneOf(
                           tensor.is_floating_point() ? kFloats : kIntegers))});
    }
    case 1:
    case 2: {
      if (dims < 2) return std::nullopt;
      int made =
          c_.Call("transpose.int", {Slot{slot}, Value(0), Value(dims - 1)});
      for (const char* name : {"clone", "transpose.int"}) {
        if (made == kNoTensor) return std::nullopt;
        made =
            name == std::string("clone")
                ? c_.Call(
                      name, {Slot{made}},
                      {{"memory_format", Value(static_cast<int64_t>(
                                             at::MemoryFormat::Contiguous))}})
                : c_.Call(name, {Slot{made}, Value(0), Value(dims - 1)});
      }
      return made;
    }
    case 3:
      if (dims == 0 || size(0) < 2) return std::nullopt;
      return c_.Call("slice.Tensor", {Slot{slot}, Value(0), Value(c_.Int(0, 1)),
                                      Value(size(0) - c_.Int(0, 1)), Value(1)});
    case 4:
      if (dims == 0) return std::nullopt;
      return c_.Call("cat", {SlotList{{slot, slot}}, Value(0)});
    case 5:
      return c_.Call("unsqueeze", {Slot{slot}, Value(0)});
    case 6:
      return c_.Call("clone", {Slot{slot}});
    default: {
      const auto other = c_.Pick([&](const at::Tensor& t) {
        return t.scalar_type() == tensor.scalar_type() &&
               t.sizes() == tensor.sizes();
      });
      return other;
    }
  }
}

void Calls::VaryArgument() {
  if (arguments_.empty()) return;
  const int argument = c_.OneOf(arguments_);
  if (varied_.erase(argument) > 0 && c_.Chance(0.7)) return;
  const int slot = SlotIn(slots_, argument);
  if (slot == kNoTensor || !c_.alive(slot)) return;
  if (c_.Chance(0.25)) {
    varied_[argument] = !parameters_.empty() && c_.Chance(0.4)
                            ? AnyParameter().slot
                            : GivenFor(c_.OneOf(arguments_));
    return;
  }
  const std::optional<int> variant = VariantOf(slot);
  if (variant.has_value() && *variant != kNoTensor) {
    varied_[argument] = *variant;
  }
}

void Calls::Change() {
  const int64_t choice = c_.Int(0, parameters_.empty() ? 8 : 20);
  switch (choice) {
    case 0:
    case 1:
    case 2:
      mode_ = mode_ != first_mode_     ? first_mode_
              : mode_ != Mode::kNormal ? Mode::kNormal
              : c_.Chance(0.6)         ? Mode::kNoGrad
                                       : Mode::kInference;
      return;
    case 3:
      fast_ = !fast_;
      c_.Add(StepOf(Step::Kind::kSetFast, {Value(fast_)}));
      return;
    case 4:
    case 5:
      attribute_ = (attribute_ + 1) % attributes_.size();
      return;
    case 6:
    case 7:
    case 8:
      return VaryArgument();
    case 9:
    case 10:
    case 11:
    case 12:
      return WriteParameter();
    case 13:
    case 14:
    case 15:
      if (!callable_->same_parameters) return ReplaceParameter();
      return MoveParameter();
    case 16:
      return MoveParameter();
    case 17:
      if (!callable_->same_parameters) return AliasParameter();
      return MoveParameter();
    default:
      return ChangeGradient();
  }
}

void Calls::ChangeBack() {
  varied_.clear();
  attribute_ = 0;
  mode_ = first_mode_;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const int first = first_parameters_[i];
    if (parameters_[i].slot == first || !c_.alive(first)) continue;
    parameters_[i].others.push_back(parameters_[i].slot);
    parameters_[i].slot = first;
  }
}

bool Calls::Ready() {
  for (Parameter& parameter : parameters_) {
    std::erase_if(parameter.others,
                  [this](int slot) { return !c_.alive(slot); });
    if (c_.alive(parameter.slot)) continue;
    if (parameter.others.empty() || callable_->same_parameters) return false;
    parameter.slot = parameter.others.back();
  }
  for (const int argument : arguments_) {
    const auto found = varied_.find(argument);
    if (found != varied_.end() && !c_.alive(found->second)) {
      varied_.erase(found);
    }
    const int slot = GivenFor(argument);
    if (slot == kNoTensor || !c_.alive(slot)) return false;
  }
  return true;
}

std::set<int> Calls::Needed() {
  Renamed next = slots_;
  Advance(c_, body_, &next);
  std::set<int> needed = SlotsIn(next);
  needed.merge(SlotsIn(varied_));
  for (const Parameter& parameter : parameters_) {
    needed.insert(parameter.slot);
  }
  return needed;
}

bool Calls::Call(std::vector<int>* made) {
  SlotList arguments, parameters;
  for (const int slot : arguments_) {
    arguments.indices.push_back(GivenFor(slot));
  }
  for (const Parameter& parameter : parameters_) {
    parameters.indices.push_back(parameter.slot);
  }
  Step step = StepOf(
      Step::Kind::kCallable,
      {std::move(arguments), std::move(parameters), attributes_[attribute_]});
  step.callable = callable_;
  for (const int output : outputs_) slots_[output] = kNoTensor;
  const Mode before = c_.ExchangeMode(mode_);
  const std::vector<int> results = c_.AddStep(std::move(step));
  c_.ExchangeMode(before);
  for (size_t i = 0; i < results.size(); ++i) {
    slots_[outputs_[i]] = results[i];
    made->push_back(results[i]);
  }
  return !results.empty();
}

void Calls::LookAfterwards() {
  ReadMade(c_, body_, slots_);
  for (const int output : outputs_) {
    const int slot = SlotIn(slots_, output);
    if (slot == kNoTensor || !c_.alive(slot)) continue;
    if (!c_.tensor(slot).requires_grad() || !c_.Chance(0.3)) continue;
    c_.Add(StepOf(Step::Kind::kBackward, {Slot{slot}, Value(false)}));
  }
  if (parameters_.empty() || !c_.Chance(0.3)) return;
  const int slot = AnyParameter().slot;
  if (!c_.alive(slot) || !c_.tensor(slot).is_leaf() ||
      !c_.tensor(slot).grad().defined()) {
    return;
  }
  const int gradient = c_.Add(StepOf(Step::Kind::kGrad, {Slot{slot}}));
  if (gradient == kNoTensor) return;
  c_.Add(StepOf(Step::Kind::kRead, {Slot{gradient}}));
  c_.Drop(gradient);
}

void Calls::Make(int times) {
  const Mode before = c_.ExchangeMode(Mode::kNormal);
  first_mode_ = mode_ = learns_ ? Mode::kNormal : before;
  if (learns_) {
    for (const Parameter& parameter : parameters_) {
      if (!c_.tensor(parameter.slot).requires_grad() && c_.Chance(0.85)) {
        Require(parameter.slot, true);
      }
    }
  }
  for (int time = 1; time < times; ++time) {
    Advance(c_, body_, &slots_);
    std::vector<int> made;
    for (const Step& upload : uploads_) {
      const auto& value = std::get<Value>(upload.arguments[0]);
      made.push_back(c_.Upload(Other(c_, value.toTensor())));
      slots_[upload.results[0]] = made.back();
    }
    if (!Ready()) break;
    if (c_.Chance(0.4)) Change();
    if (!Ready()) break;
    if (c_.Chance(0.15)) c_.ChangeLane();
    if (!Call(&made) && c_.Chance(0.7)) ChangeBack();
    if (!Ready()) break;
    LookAfterwards();
    if (time + 1 < times) DropMade(c_, made, Needed());
  }
  if (fast_ && c_.Chance(0.75)) {
    c_.Add(StepOf(Step::Kind::kSetFast, {Value(false)}));
  }
  c_.ExchangeMode(before);
}

}  // namespace

void MakeCalls(Composer& c, const Body& body, int times) {
  Calls calls(c, body);
  if (calls.Build()) calls.Make(times);
}

}  // namespace djinn::random_programs
