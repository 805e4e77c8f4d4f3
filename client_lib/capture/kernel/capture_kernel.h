// The boxed kernel that stands for an operator on remote tensors: it finds the
// results' shapes without running anything, records the call and returns remote
// tensors.
//
// Shapes, in this order: memo of equal calls → re-entry into PyTorch's own meta
// function or composite, in shape-only mode → rule table → one synchronous
// execution on the worker, counted by operator.
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
// Throws c10::Error for mistakes in the call, djinn::Error for failures of the
// remote side.
void CaptureCall(const OperatorInfo& info, torch::jit::Stack* stack);

class CaptureKernel : public c10::OperatorKernel {
 public:
  // `info` lives for ever.
  explicit CaptureKernel(const OperatorInfo* info) : info_(info) {}

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet,
                  torch::jit::Stack* stack) {
    CaptureCall(*info_, stack);
  }

 private:
  const OperatorInfo* const info_;
};

// Times each operator had to run synchronously because its result's shape
// depends on data or has no rule. Since the process began.
std::map<std::string, uint64_t> SynchronousCalls();

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_KERNEL_CAPTURE_KERNEL_H_
