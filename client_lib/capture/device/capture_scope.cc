#include "djinn/capture_scope.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <memory>
#include <utility>

#include "client_lib/capture/device/backend.h"
#include "client_lib/capture/device/operator_observer.h"

namespace djinn {
namespace {

// PyTorch leaves only this functionality key above all others to applications.
// PyTorch itself uses the key only in tests of the dispatcher.
constexpr c10::DispatchKey kScopeKey =
    c10::DispatchKey::TESTING_ONLY_GenericMode;

// The device index of the innermost scope, or -1 outside of scopes.
thread_local int scope_device = -1;
thread_local capture::OperatorObserver* observer = nullptr;

// Includes the key while a scope is open or an observer is set.
void SwitchKey() {
  c10::impl::tls_set_dispatch_key_included(
      kScopeKey, scope_device >= 0 || observer != nullptr);
}

bool HasTensor(const torch::jit::Stack& stack, size_t count) {
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    if (stack[i].isTensor() && stack[i].toTensor().defined()) return true;
    if (stack[i].isTensorList()) return true;
  }
  return false;
}

// Observes every operator of the thread while the key is included. Changes only
// factory calls: calls without tensors whose device argument is None.
void ScopeFallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard below(kScopeKey);
  const c10::FunctionSchema& schema = op.schema();
  const size_t count = schema.arguments().size();
  for (size_t i = 0; scope_device >= 0 && i < count; ++i) {
    if (schema.arguments()[i].name() != "device") continue;
    c10::IValue& device = (*stack)[stack->size() - count + i];
    if (device.isNone() && !HasTensor(*stack, count)) {
      device = c10::Device(c10::DeviceType::PrivateUse1,
                           static_cast<c10::DeviceIndex>(scope_device));
    }
    break;
  }
  capture::OperatorObserver* const watching = observer;
  if (watching != nullptr) watching->Before(op, *stack);
  op.callBoxed(stack);
  if (watching != nullptr) watching->After(op, *stack);
}

}  // namespace

namespace capture {

void RegisterCaptureScope() {
  static const bool registered = [] {
    KeepForever(std::make_unique<torch::Library>(torch::Library::IMPL, "_",
                                                 kScopeKey, __FILE__, __LINE__))
        .fallback(torch::CppFunction::makeFromBoxedFunction<&ScopeFallback>());
    return true;
  }();
  (void)registered;
}

OperatorObserver* ExchangeObserver(OperatorObserver* next) {
  OperatorObserver* const before = std::exchange(observer, next);
  SwitchKey();
  return before;
}

}  // namespace capture

CaptureScope::CaptureScope(int device_index) : outer_(scope_device) {
  scope_device = device_index;
  SwitchKey();
}

CaptureScope::~CaptureScope() {
  scope_device = outer_;
  SwitchKey();
}

}  // namespace djinn
