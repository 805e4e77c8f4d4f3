#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tests/random_programs/calls.h"
#include "tests/random_programs/loop_body.h"
#include "tests/random_programs/makers.h"

namespace djinn::random_programs {
namespace {

using Value = c10::IValue;

constexpr size_t kMaxOutputs = 6;

}  // namespace

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
        for_each(Step::Kind::kUpdate, Value(kUpdateRate));
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

void MakeCalls(Composer& c, const Body& body, int times) {
  Calls calls(c, body);
  if (calls.Build()) calls.Make(times);
}

}  // namespace djinn::random_programs
