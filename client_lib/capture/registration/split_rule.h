// Decides which composites are split in this process and which are captured
// whole.
//
// A worker executes a composite in inference mode, as part of a graph: no
// operand requires a gradient, autocast is off, and PyTorch's settings have
// their defaults. It knows the operands' sizes and strides, also those of
// dimensions of size 1. A composite that chooses its parts by anything else
// would compute other bits there. Such a call is split here, above autograd,
// where each part sees what it would see on the CPU. For example, a view of a
// parameter requires a gradient even if none is recorded.
//
// A split is always right, but it costs nodes and hides from a reader of the
// graph what the program computes. The rule therefore leaves a call whole where
// the worker makes the CPU's choice.
#ifndef CLIENT_LIB_CAPTURE_REGISTRATION_SPLIT_RULE_H_
#define CLIENT_LIB_CAPTURE_REGISTRATION_SPLIT_RULE_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <string>

namespace djinn::capture {

// Thread-safe once constructed.
class SplitRule {
 public:
  // `name` is the composite's full name. `own_split`, if it is valid, replaces
  // PyTorch's own split, which asks whether tensors are on the CPU.
  SplitRule(const std::string& name, c10::KernelFunction own_split);

  // Returns whether a call that autograd still has to see is split.
  bool SplitsAboveAutograd(c10::ArrayRef<c10::IValue> arguments) const;

  // Returns whether a call is split that skips autograd, because the program is
  // in inference mode or the call comes from another kernel. True implies
  // SplitsAboveAutograd().
  bool SplitsBelowAutograd(c10::ArrayRef<c10::IValue> arguments) const;

  // Replaces the composite's arguments on the stack by its results, which its
  // parts compute.
  void Split(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
             torch::jit::Stack* stack) const;

 private:
  using Predicate = bool (*)(c10::ArrayRef<c10::IValue> arguments);

  static Predicate PredicateOf(const std::string& name);

  // Returns whether a worker would choose other parts than the CPU. Null if it
  // never does.
  const Predicate chooses_otherwise_;
  const bool may_make_view_;
  const c10::KernelFunction own_split_;
};

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_REGISTRATION_SPLIT_RULE_H_
