#include "gpu_worker/session/state/models.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/saturating.h"
#include "common/base/status_macros.h"

namespace djinn::worker {
namespace {

absl::Status TooManyModels() {
  return MakeError(
      absl::StatusCode::kResourceExhausted, "MAX_MODELS",
      absl::StrCat("models of a session: limit ", Models::kMaxModels, ", used ",
                   Models::kMaxModels, ", asked 1"),
      {{"limit", absl::StrCat(Models::kMaxModels)},
       {"used", absl::StrCat(Models::kMaxModels)},
       {"asked", "1"}});
}

}  // namespace

absl::Status Models::Register(uint64_t id, absl::string_view name,
                              uint64_t size_bytes) {
  MutexLock lock(&mu_);
  const auto known = models_.find(id);
  const absl::Status status = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const uint64_t most = account_->max_model_bytes();
    if (size_bytes > most) {
      return LimitExceeded(
          "MODEL_BYTES", absl::StrCat("what the model ", name, " keeps using"),
          most, known == models_.end() ? 0 : known->second.bytes->load(),
          size_bytes);
    }
    if (known != models_.end()) return absl::OkStatus();
    if (models_.size() >= kMaxModels) return TooManyModels();
    return account_->AddModel();
  }();
  if (!status.ok()) {
    ++refused_;
    return status;
  }
  models_.insert_or_assign(id, Model(name, size_bytes));
  return absl::OkStatus();
}

bool Models::Adopt(const v1::ModelState& model) {
  MutexLock lock(&mu_);
  if (model.model_id() == 0 || model.name().size() > kMaxNameBytes ||
      models_.size() >= kMaxModels) {
    return false;
  }
  const Model entry(model.name(), model.size_bytes());
  if (!models_.emplace(model.model_id(), entry).second) return false;
  account_->AdoptModel();
  return true;
}

std::weak_ptr<ModelBytes> Models::BytesOf(uint64_t id) const {
  MutexLock lock(&mu_);
  const auto found = models_.find(id);
  return found == models_.end() ? std::weak_ptr<ModelBytes>()
                                : found->second.bytes;
}

void Models::Remove(uint64_t id) {
  MutexLock lock(&mu_);
  account_->RemoveModels(models_.erase(id));
}

void Models::Clear() {
  MutexLock lock(&mu_);
  account_->RemoveModels(models_.size());
  models_.clear();
}

void Models::Report(v1::SessionUse* use) const {
  MutexLock lock(&mu_);
  uint64_t bytes = 0;
  // Reads the sizes once, because they may shrink meanwhile.
  std::vector<std::pair<uint64_t, const Model*>> largest;
  for (const auto& [id, model] : models_) {
    largest.emplace_back(model.bytes->load(), &model);
    bytes = SaturatingSum(bytes, largest.back().first);
  }
  use->set_model_count(static_cast<uint32_t>(models_.size()));
  use->set_model_bytes(bytes);
  use->set_refused_models(refused_);
  std::stable_sort(
      largest.begin(), largest.end(),
      [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [size_bytes, model] : largest) {
    if (use->models_size() >= kMaxReported) break;
    v1::ModelUse* const reported = use->add_models();
    reported->set_name(model->name);
    reported->set_size_bytes(size_bytes);
  }
}

void Models::Describe(v1::SessionState* state) const {
  MutexLock lock(&mu_);
  for (const auto& [id, model] : models_) {
    v1::ModelState* const described = state->add_models();
    described->set_model_id(id);
    described->set_name(model.name);
    described->set_size_bytes(model.bytes->load());
  }
}

}  // namespace djinn::worker
