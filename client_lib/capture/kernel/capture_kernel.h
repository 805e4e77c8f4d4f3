// The boxed kernel that captures an operator's calls on remote tensors. It
// infers the metadata of the results without running the operator, records the
// call, and returns remote tensors.
//
// It finds the metadata in the first of these that knows it: the memo of equal
// calls, the rule table, PyTorch's own meta function or composite in shape-only
// mode, and one synchronous execution on the worker, which is counted by
// operator.
#ifndef CLIENT_LIB_CAPTURE_KERNEL_CAPTURE_KERNEL_H_
#define CLIENT_LIB_CAPTURE_KERNEL_CAPTURE_KERNEL_H_

#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <map>
#include <string>

#include "client_lib/capture/operators/operator_info.h"

namespace djinn::capture {

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
