#include "client_lib/capture/kernel/custom_operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "client_lib/capture/device/backend.h"
#include "client_lib/capture/kernel/capture_kernel.h"
#include "common/base/mutex.h"

namespace djinn::capture {
namespace {

// Holds the facts about each custom operator, by name, from its first call on.
class CustomOperators final {
 public:
  // Finds or adds the operator's info, which lives for the rest of the process,
  // because programs may keep results of an operator after its deregistration.
  const OperatorInfo& Find(const c10::OperatorHandle& op) {
    {
      MutexLock lock(&mu_);
      const auto found = infos_.find(op.operator_name());
      if (found != infos_.end()) return *found->second;
    }
    auto info = std::make_unique<const OperatorInfo>(op);
    MutexLock lock(&mu_);
    const auto [entry, added] =
        infos_.try_emplace(op.operator_name(), info.get());
    if (added) kept_.push_back(std::move(info));
    return *entry->second;
  }

  // Forgets an operator that was deregistered. The next operator of that name
  // may differ.
  void Forget(const c10::OperatorName& name) {
    MutexLock lock(&mu_);
    infos_.erase(name);
  }

  bool IsAccepted(uint32_t operator_id,
                  const std::shared_ptr<VirtualDevice>& device) {
    MutexLock lock(&mu_);
    const auto found = accepted_.find(operator_id);
    return found != accepted_.end() && found->second.contains(device);
  }

  void NoteAccepted(uint32_t operator_id,
                    const std::shared_ptr<VirtualDevice>& device) {
    MutexLock lock(&mu_);
    Devices& devices = accepted_[operator_id];
    std::erase_if(devices, [](const auto& known) { return known.expired(); });
    devices.insert(device);
  }

 private:
  using Devices = std::set<std::weak_ptr<VirtualDevice>, std::owner_less<>>;

  Mutex mu_;
  absl::flat_hash_map<c10::OperatorName, const OperatorInfo*,
                      std::hash<c10::OperatorName>>
      infos_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<const OperatorInfo>> kept_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint32_t, Devices> accepted_ ABSL_GUARDED_BY(mu_);
};

CustomOperators& All() {
  static auto* const all = new CustomOperators;
  return *all;
}

class Listener final : public c10::OpRegistrationListener {
 public:
  void onOperatorRegistered(const c10::OperatorHandle&) override {}
  void onOperatorDeregistered(const c10::OperatorHandle& op) override {
    All().Forget(op.operator_name());
  }
};

void Capture(const c10::OperatorHandle& op, c10::DispatchKeySet,
             torch::jit::Stack* stack) {
  CaptureCall(All().Find(op), stack);
}

}  // namespace

void RegisterCustomOperators() {
  static const bool registered = [] {
    KeepForever(std::make_unique<c10::RegistrationHandleRAII>(
        c10::Dispatcher::singleton().addRegistrationListener(
            std::make_unique<Listener>())));
    KeepForever(std::make_unique<torch::Library>(torch::Library::IMPL, "_",
                                                 c10::DispatchKey::PrivateUse1,
                                                 __FILE__, __LINE__))
        .fallback(torch::CppFunction::makeFromBoxedFunction<&Capture>());
    return true;
  }();
  (void)registered;
}

bool IsAcceptedBy(const OperatorInfo& info,
                  const std::shared_ptr<VirtualDevice>& device) {
  return All().IsAccepted(info.operator_id, device);
}

void NoteAcceptedBy(const OperatorInfo& info,
                    const std::shared_ptr<VirtualDevice>& device) {
  All().NoteAccepted(info.operator_id, device);
}

}  // namespace djinn::capture
