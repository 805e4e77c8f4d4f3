#include "client_lib/capture/device/custom_autocast.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "client_lib/capture/device/backend.h"
#include "common/base/mutex.h"

namespace djinn::capture {
namespace {

constexpr auto kKey = c10::DispatchKey::AutocastPrivateUse1;

// Holds the names of the operators that CastNewOperators() has not seen.
class NewOperators {
 public:
  static NewOperators& Get() {
    static auto* const all = new NewOperators;
    return *all;
  }

  void Add(const c10::OperatorName& name) {
    MutexLock lock(&mu_);
    names_.push_back(name);
    any_.store(true, std::memory_order_relaxed);
  }

  std::vector<c10::OperatorName> Take() {
    if (!any_.load(std::memory_order_relaxed)) return {};
    MutexLock lock(&mu_);
    any_.store(false, std::memory_order_relaxed);
    return std::exchange(names_, {});
  }

 private:
  std::atomic<bool> any_ = false;
  Mutex mu_;
  std::vector<c10::OperatorName> names_ ABSL_GUARDED_BY(mu_);
};

class Listener final : public c10::OpRegistrationListener {
 public:
  void onOperatorRegistered(const c10::OperatorHandle& op) override {
    const c10::OperatorName& name = op.operator_name();
    if (!absl::StartsWith(name.name, "aten::") &&
        !absl::StartsWith(name.name, "prim")) {
      NewOperators::Get().Add(name);
    }
  }
  void onOperatorDeregistered(const c10::OperatorHandle&) override {}
};

// Calls the operator on float32 operands, and returns floating-point results in
// the dtype of the first floating-point operand.
void CastOperands(const c10::OperatorHandle& op, c10::DispatchKeySet,
                  torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(kKey);
  // The program defined the operator again after LacksAutocast(). It must write
  // to its operands, and not to copies.
  if (op.schema().is_mutable()) return op.callBoxed(stack);
  const auto cast = [](const at::Tensor& tensor) {
    return at::autocast::cached_cast(at::kFloat, tensor, at::kPrivateUse1);
  };
  std::optional<c10::ScalarType> type;
  const size_t begin = stack->size() - op.schema().arguments().size();
  for (size_t i = begin; i < stack->size(); ++i) {
    c10::IValue& argument = (*stack)[i];
    if (argument.isTensor() && argument.toTensor().defined()) {
      const at::Tensor tensor = argument.toTensor();
      if (!type.has_value() && tensor.is_floating_point()) {
        type = tensor.scalar_type();
      }
      argument = cast(tensor);
    } else if (argument.isTensorList()) {
      std::vector<at::Tensor> tensors = argument.toTensorVector();
      for (at::Tensor& tensor : tensors) tensor = cast(tensor);
      argument = std::move(tensors);
    }
  }
  op.callBoxed(stack);
  if (!type.has_value()) return;
  const size_t first = stack->size() - op.schema().returns().size();
  for (size_t i = first; i < stack->size(); ++i) {
    c10::IValue& result = (*stack)[i];
    if (result.isTensor() && result.toTensor().defined() &&
        result.toTensor().is_floating_point()) {
      result = result.toTensor().to(*type);
    }
  }
}

bool Casts(const c10::OperatorHandle& op, c10::DispatchKey key) {
  return op.hasKernelForDispatchKey(key) && !op.isKernelFallthroughKernel(key);
}

// Returns whether remote tensors lack an autocast kernel that other devices
// have. An operator that writes its operands must not get copies of them.
bool LacksAutocast(const c10::OperatorName& name) {
  const std::optional<c10::OperatorHandle> op =
      c10::Dispatcher::singleton().findSchema(name);
  return op.has_value() && !op->schema().is_mutable() &&
         !op->hasKernelForDispatchKey(kKey) &&
         (Casts(*op, c10::DispatchKey::AutocastCUDA) ||
          Casts(*op, c10::DispatchKey::AutocastCPU));
}

}  // namespace

void WatchCustomOperators() {
  KeepForever(std::make_unique<c10::RegistrationHandleRAII>(
      c10::Dispatcher::singleton().addRegistrationListener(
          std::make_unique<Listener>())));
}

void CastNewOperators() {
  static Mutex* const registering = new Mutex;
  for (const c10::OperatorName& name : NewOperators::Get().Take()) {
    if (!LacksAutocast(name)) continue;
    const size_t colons = name.name.find("::");
    MutexLock lock(registering);
    KeepForever(std::make_unique<torch::Library>(torch::Library::IMPL,
                                                 name.name.substr(0, colons),
                                                 kKey, __FILE__, __LINE__))
        .impl(toString(name).substr(colons + 2).c_str(),
              torch::CppFunction::makeFromBoxedFunction<&CastOperands>());
  }
}

}  // namespace djinn::capture
