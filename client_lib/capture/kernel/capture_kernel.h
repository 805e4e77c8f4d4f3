// The boxed kernel that captures an operator's calls on remote tensors. It
// infers the metadata of the results without running the operator, records the
// call, and returns remote tensors.
//
// It takes the metadata from the first of these sources that knows them: the
// memo of equal calls, the rule table, PyTorch's own meta function or composite
// in shape-only mode, and one synchronous execution on the worker, which is
// counted by operator.
#ifndef CLIENT_LIB_CAPTURE_KERNEL_CAPTURE_KERNEL_H_
#define CLIENT_LIB_CAPTURE_KERNEL_CAPTURE_KERNEL_H_

#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/DefaultDtype.h>

#include <cstdint>
#include <map>
#include <string>

#include "client_lib/capture/operators/operator_info.h"

namespace djinn::capture {

// Executes a call in shape-only mode, which records nothing. Replaces the
// operator's arguments on the stack by results that have metadata only. Throws
// NoShape if the metadata depend on data, and c10::Error for a mistake in the
// call.
void ShapeOnlyCall(const OperatorInfo& info, torch::jit::Stack* stack);

// Support torch.set_default_dtype(). Workers always compute with PyTorch's
// usual default, float32. If the program has set another default, a call that
// depends on it is rewritten: a factory names its dtype, and integers that
// become real numbers are converted explicitly.
//
// Returns whether the program's default dtype is the worker's, so that calls
// need no rewriting.
inline bool HasUsualDefaultDtype() {
  return c10::get_default_dtype() == caffe2::TypeMeta::Make<float>();
}

// Rewrites the call's arguments so that its results do not depend on the
// default dtype. It may record calls that convert operands. Throws c10::Error
// as the call itself would, or if the call cannot be rewritten.
void MakeDefaultDtypeExplicit(const OperatorInfo& info, c10::IValue* arguments);

// Replaces the operator's arguments on the stack by its results. Thread-safe.
// Throws c10::Error for a mistake in the call, and djinn::Error for a failure
// of the session.
void CaptureCall(const OperatorInfo& info, torch::jit::Stack* stack);

class CaptureKernel : public c10::OperatorKernel {
 public:
  // `info` lives for the rest of the process.
  explicit CaptureKernel(const OperatorInfo* info) : info_(info) {}

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet,
                  torch::jit::Stack* stack) {
    CaptureCall(*info_, stack);
  }

 private:
  const OperatorInfo* const info_;
};

// Returns how often each operator was executed synchronously since the process
// started, because its result's shape depends on data or has no rule.
std::map<std::string, uint64_t> SynchronousCalls();

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_KERNEL_CAPTURE_KERNEL_H_
