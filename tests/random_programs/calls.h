// Makes calls of a callable, and changes what they depend on between calls.
#ifndef TESTS_RANDOM_PROGRAMS_CALLS_H_
#define TESTS_RANDOM_PROGRAMS_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tests/random_programs/composer.h"
#include "tests/random_programs/loop_body.h"

namespace djinn::random_programs {

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
  std::vector<c10::IValue> attributes_;
  size_t attribute_ = 0;
  Mode first_mode_ = Mode::kNormal;
  Mode mode_ = Mode::kNormal;
  bool fast_ = false;
};

inline Step StepOf(Step::Kind kind, std::vector<Argument> arguments) {
  Step step;
  step.kind = kind;
  step.arguments = std::move(arguments);
  return step;
}

// Returns whether a backward pass may give the tensor a gradient.
inline bool MayLearn(const at::Tensor& tensor) {
  return tensor.is_floating_point() && tensor.is_leaf() &&
         !tensor.is_inference();
}

// The rate of an update. It is a power of two, so that the product is exact and
// only the difference is rounded.
inline constexpr double kUpdateRate = 0.125;

}  // namespace djinn::random_programs

#endif  // TESTS_RANDOM_PROGRAMS_CALLS_H_
