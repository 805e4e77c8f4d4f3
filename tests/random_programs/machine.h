// Executes the steps of a program on one device.
#ifndef TESTS_RANDOM_PROGRAMS_MACHINE_H_
#define TESTS_RANDOM_PROGRAMS_MACHINE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/random_programs/program.h"

namespace djinn::random_programs {

// Sets the mode while it lives.
class GradientScope {
 public:
  explicit GradientScope(Mode mode);
  GradientScope(const GradientScope&) = delete;
  GradientScope& operator=(const GradientScope&) = delete;

 private:
  std::optional<c10::InferenceMode> inference_;
  std::optional<c10::AutoGradMode> gradients_;
};

// The values that a call of a callable uses.
struct Given {
  std::vector<at::Tensor> arguments;
  std::vector<at::Tensor> parameters;
  c10::IValue attribute;
};

// Several lanes may use one machine concurrently, if they order their uses of
// each slot.
class Machine {
 public:
  // Returns another tensor for an operand of a call, or the same.
  using Substitute =
      std::function<at::Tensor(const c10::Argument&, const at::Tensor&)>;

  // Executes a callable.
  using Invoke = std::function<std::vector<at::Tensor>(const Callable&,
                                                       const Given& given)>;

  // Makes a machine for a program. On the CPU, the machine zeroes memory that
  // PyTorch leaves uninitialized, because a remote device zeroes it.
  Machine(c10::Device device, int slots) : device_(device), slots_(slots) {}
  // Makes a machine for the steps of a callable.
  Machine(c10::Device device, const Callable& callable, const Given& given);

  // Sets how callables are executed. By default their steps are executed one by
  // one.
  void set_invoke(Invoke invoke) { invoke_ = std::move(invoke); }

  // Executes the step and returns its results. A read returns the value as a
  // contiguous CPU tensor. Throws whatever PyTorch throws; in that case no slot
  // has changed.
  std::vector<at::Tensor> Execute(const Step& step,
                                  const Substitute* substitute = nullptr);

  // Puts the results into the slots that the step names, and empties the named
  // slots for which there is no result.
  void Store(const Step& step, const std::vector<at::Tensor>& results);
  void Fill(int slot, at::Tensor tensor) { slots_[slot] = std::move(tensor); }
  void Empty(int slot) { slots_[slot] = at::Tensor(); }

  // Returns the tensors that a step uses, in order.
  std::vector<at::Tensor> Operands(const Step& step) const;
  // Returns the values that a call of a callable uses.
  Given GivenBy(const Step& step) const;
  // Returns the results of a callable after its steps.
  std::vector<at::Tensor> Outputs(const Callable& callable) const;
  // Returns whether every slot that the step uses holds a tensor.
  bool Ready(const Step& step) const;

  const at::Tensor& slot(int index) const { return slots_[index]; }
  int size() const { return static_cast<int>(slots_.size()); }

 private:
  std::vector<at::Tensor> Call(const Step& step, const Substitute* substitute);

  const c10::Device device_;
  Invoke invoke_;
  std::vector<at::Tensor> slots_;
  c10::IValue attribute_;
};

// Executes the steps of a callable one by one.
std::vector<at::Tensor> Perform(const Callable& callable, const Given& given,
                                c10::Device device);

// Returns the slots that a step uses, in order, without kNoTensor.
std::vector<int> SlotsOf(const Step& step);

// Returns the message of a failed call in lower case and without a backtrace.
// The CPU's name replaces the name of any remote device.
std::string MessageOf(const std::exception& error);

}  // namespace djinn::random_programs

#endif  // TESTS_RANDOM_PROGRAMS_MACHINE_H_
