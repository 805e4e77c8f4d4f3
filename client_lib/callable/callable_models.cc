#include "client_lib/callable/callable_models.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace djinn::capture {
namespace {

// A budget may have room again, so one of this many refused calls asks for it.
constexpr uint64_t kCallsPerRetry = 256;

std::atomic<uint64_t> last_model_id{0};

absl::flat_hash_set<uint64_t> IdsOf(const std::vector<StoragePtr>& storages) {
  absl::flat_hash_set<uint64_t> ids;
  for (const StoragePtr& storage : storages) ids.insert(storage->id());
  return ids;
}

}  // namespace

CallableModels::~CallableModels() { Retain({}); }

bool CallableModels::Admit(uint32_t lane,
                           const std::shared_ptr<VirtualDevice>& device,
                           const std::vector<StoragePtr>& captured,
                           std::vector<StoragePtr> all) {
  if (captured.empty()) return true;
  Ids wanted = IdsOf(all);
  std::shared_ptr<Model> model;
  {
    MutexLock lock(&mu_);
    model = ModelOn(device);
    if (model->known == wanted) return true;
    if (model->asking) return false;
    if (model->refused == wanted && ++model->held_back % kCallsPerRetry != 0) {
      return model->Knows(captured);
    }
    model->asking = true;
  }
  const absl::Status status =
      device->RegisterModel(lane, model->id, name_, std::move(all));
  {
    MutexLock lock(&mu_);
    model->asking = false;
    if (!model->gone)
      return Note(status, std::move(wanted), captured, model.get());
  }
  device->ForgetModel(model->id);
  return false;
}

bool CallableModels::Note(const absl::Status& status, Ids wanted,
                          const std::vector<StoragePtr>& captured,
                          Model* model) {
  if (absl::IsResourceExhausted(status)) {
    model->refused = std::move(wanted);
    model->held_back = 0;
    refusal_ = absl::StrCat(ErrorReason(status), ": ", status.message());
    return model->Knows(captured);
  }
  if (!status.ok()) return true;
  model->known = std::move(wanted);
  model->refused.clear();
  refusal_.clear();
  return true;
}

bool CallableModels::Model::Knows(
    const std::vector<StoragePtr>& captured) const {
  return absl::c_all_of(captured, [this](const StoragePtr& storage) {
    return known.contains(storage->id());
  });
}

std::string CallableModels::refusal() const {
  MutexLock lock(&mu_);
  return refusal_;
}

void CallableModels::Retain(
    const absl::flat_hash_set<const VirtualDevice*>& devices) {
  std::vector<std::shared_ptr<Model>> gone;
  {
    MutexLock lock(&mu_);
    const auto first_gone = std::stable_partition(
        models_.begin(), models_.end(), [&](const auto& model) {
          return devices.contains(model->device.get());
        });
    gone.assign(first_gone, models_.end());
    for (const std::shared_ptr<Model>& model : gone) model->gone = true;
    models_.erase(first_gone, models_.end());
  }
  for (const std::shared_ptr<Model>& model : gone) {
    model->device->ForgetModel(model->id);
  }
}

std::shared_ptr<CallableModels::Model> CallableModels::ModelOn(
    const std::shared_ptr<VirtualDevice>& device) {
  for (const std::shared_ptr<Model>& model : models_) {
    if (model->device == device) return model;
  }
  auto model = std::make_shared<Model>();
  model->device = device;
  model->id = last_model_id.fetch_add(1, std::memory_order_relaxed) + 1;
  models_.push_back(model);
  return model;
}

}  // namespace djinn::capture
