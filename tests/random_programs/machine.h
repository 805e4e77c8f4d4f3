// Carries out the steps of a program on one device.
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

// The mode while it lives.
class GradientScope {
 public:
  explicit GradientScope(Mode mode);
  GradientScope(const GradientScope&) = delete;
  GradientScope& operator=(const GradientScope&) = delete;

 private:
  std::optional<c10::InferenceMode> inference_;
  std::optional<c10::AutoGradMode> gradients_;
};

// What a call of a callable is given.
struct Given {
  std::vector<at::Tensor> arguments;
  std::vector<at::Tensor> parameters;
  c10::IValue attribute;
};

// Lanes may use one machine at once, as long as they order their use of every
// slot.
class Machine {
 public:
  // Gives another tensor for an operand of a call, or the same.
  using Substitute =
      std::function<at::Tensor(const c10::Argument&, const at::Tensor&)>;

  // Carries out a callable.
  using Invoke = std::function<std::vector<at::Tensor>(const Callable&,
                                                       const Given& given)>;

  // Memory that PyTorch leaves as it is on the CPU is zero on a remote device,
  // so it is made zero here, too.
  Machine(c10::Device device, int slots) : device_(device), slots_(slots) {}
  // For the steps of a callable.
  Machine(c10::Device device, const Callable& callable, const Given& given);

  // Otherwise the steps of a callable are executed one by one.
  void set_invoke(Invoke invoke) { invoke_ = std::move(invoke); }

  // Throws what PyTorch throws; then no slot has changed. A read returns the
  // value as a contiguous CPU tensor.
  std::vector<at::Tensor> Execute(const Step& step,
                                  const Substitute* substitute = nullptr);

  // Puts results into the slots the step names. Slots without a result are
  // emptied.
  void Store(const Step& step, const std::vector<at::Tensor>& results);
  void Fill(int slot, at::Tensor tensor) { slots_[slot] = std::move(tensor); }
  void Empty(int slot) { slots_[slot] = at::Tensor(); }

  // The tensors a step uses, in order.
  std::vector<at::Tensor> Operands(const Step& step) const;
  // Of a call of a callable.
  Given GivenBy(const Step& step) const;
  // What a callable returns after its steps.
  std::vector<at::Tensor> Outputs(const Callable& callable) const;
  // Whether every slot it uses holds a tensor.
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

// The steps of a callable, one by one.
std::vector<at::Tensor> Perform(const Callable& callable, const Given& given,
                                c10::Device device);

// The slots a step uses, in order, kNoTensor left out.
std::vector<int> SlotsOf(const Step& step);

// What a failed call says, in lower case, without a backtrace and with the name
// of any remote device replaced by the CPU's.
std::string MessageOf(const std::exception& error);

}  // namespace djinn::random_programs

#endif  // TESTS_RANDOM_PROGRAMS_MACHINE_H_
