#include "gpu_worker/session/models.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "common/status_macros.h"

namespace djinn::worker {
namespace {

// No storage vouches for the size that it says it would have.
uint64_t Sum(uint64_t a, uint64_t b) {
  uint64_t sum;
  return __builtin_add_overflow(a, b, &sum)
             ? std::numeric_limits<uint64_t>::max()
             : sum;
}

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
          most, known == models_.end() ? 0 : known->second.size_bytes,
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
  models_[id] = {std::string(name), size_bytes};
  return absl::OkStatus();
}

bool Models::Adopt(const v1::ModelState& model) {
  MutexLock lock(&mu_);
  if (model.model_id() == 0 || model.name().size() > kMaxNameBytes ||
      models_.size() >= kMaxModels) {
    return false;
  }
  const Model entry = {model.name(), model.size_bytes()};
  if (!models_.emplace(model.model_id(), entry).second) return false;
  account_->AdoptModel();
  return true;
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
  std::vector<const Model*> largest;
  for (const auto& [id, model] : models_) {
    bytes = Sum(bytes, model.size_bytes);
    largest.push_back(&model);
  }
  use->set_model_count(static_cast<uint32_t>(models_.size()));
  use->set_model_bytes(bytes);
  use->set_refused_models(refused_);
  std::stable_sort(largest.begin(), largest.end(),
                   [](const Model* a, const Model* b) {
                     return a->size_bytes > b->size_bytes;
                   });
  for (const Model* model : largest) {
    if (use->models_size() >= kMaxReported) break;
    v1::ModelUse* const reported = use->add_models();
    reported->set_name(model->name);
    reported->set_size_bytes(model->size_bytes);
  }
}

void Models::Describe(v1::SessionState* state) const {
  MutexLock lock(&mu_);
  for (const auto& [id, model] : models_) {
    v1::ModelState* const described = state->add_models();
    described->set_model_id(id);
    described->set_name(model.name);
    described->set_size_bytes(model.size_bytes);
  }
}

}  // namespace djinn::worker
