// Provides what the makers of steps share: random numbers, the program so far,
// and the tensors that are alive after its last step.
#ifndef TESTS_RANDOM_PROGRAMS_COMPOSER_H_
#define TESTS_RANDOM_PROGRAMS_COMPOSER_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/random_programs/oracle.h"
#include "tests/random_programs/program.h"

namespace djinn::random_programs {

class Composer {
 public:
  // The kinds of steps that a program has.
  struct Profile {
    int steps = 40;
    int lanes = 1;
    bool gradients = false;
    bool failures = false;
    int loops = 0;
  };
  using Named = std::map<std::string, Argument>;
  using Predicate = std::function<bool(const at::Tensor&)>;

  Composer(uint64_t seed, const Profile& profile);

  const Profile& profile() const { return profile_; }
  Program Take() &&;

  // The following functions make random choices.
  int64_t Int(int64_t low, int64_t high);  // both included
  bool Chance(double probability);
  double Real();
  template <typename T>
  const T& OneOf(const std::vector<T>& values) {
    return values[Int(0, static_cast<int64_t>(values.size()) - 1)];
  }
  std::string OneOf(std::initializer_list<const char*> values) {
    return *(values.begin() + Int(0, static_cast<int64_t>(values.size()) - 1));
  }
  std::vector<int64_t> Sizes();
  at::ScalarType DataType();
  at::ScalarType FloatType();
  // Returns a CPU tensor of random elements.
  at::Tensor Values(at::ScalarType dtype, at::IntArrayRef sizes);
  // Returns indices below `limit`.
  at::Tensor Indices(int64_t limit, at::IntArrayRef sizes);

  // Returns a live tensor that satisfies the predicate, or nothing.
  std::optional<int> Pick(const Predicate& fits);
  std::optional<int> PickAny();
  // Returns a float tensor, which it uploads if there is none.
  int PickFloat();
  // Returns an operand for an elementwise call with `other`: a slot or a
  // 0-dimensional CPU tensor.
  Argument PickPartner(int other);
  Slot PickSlotPartner(int other);
  const at::Tensor& tensor(int slot) const {
    return oracle_.machine().slot(slot);
  }
  bool alive(int slot) const { return tensor(slot).defined(); }
  const std::vector<int>& live() const { return live_; }

  // Adds a call. Returns its first result, or kNoTensor if the call raised or
  // was left out.
  int Call(const std::string& name, std::vector<Argument> positional,
           Named named = {});
  int Upload(const at::Tensor& values);
  int Add(Step step);
  // Adds a step. Returns all of its results, or none if the step raised or was
  // left out.
  std::vector<int> AddStep(Step step);
  void Drop(int slot);

  // Return the steps so far, and whether a step was done rather than raised.
  const std::vector<Step>& steps() const { return program_.steps; }
  bool done(size_t step) const { return done_[step]; }
  // Sets the mode of later steps. Returns the mode before.
  Mode ExchangeMode(Mode mode) { return std::exchange(mode_, mode); }
  void ChangeLane();

  // Returns the number of the next callable.
  int NextCallable() { return callables_++; }

  // Prepares for the next maker. Drops tensors if there are many. May change
  // the lane of later steps, and may begin or end a section of no_grad or
  // inference_mode.
  void BeginStep();

 private:
  std::mt19937_64 random_;
  const Profile profile_;
  Program program_;
  Oracle oracle_;
  std::vector<bool> done_;
  int callables_ = 0;
  std::vector<int> live_;
  Mode mode_ = Mode::kNormal;
  int lane_ = 0;
};

// Returns a data type as an argument.
Argument DataTypeArgument(at::ScalarType dtype);
Argument Ints(std::vector<int64_t> values);

}  // namespace djinn::random_programs

#endif  // TESTS_RANDOM_PROGRAMS_COMPOSER_H_
