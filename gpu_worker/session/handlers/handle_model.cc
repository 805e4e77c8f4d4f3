// Handles RegisterModel: counts what a registered callable keeps using.
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/saturating.h"
#include "gpu_worker/session/base/violation.h"
#include "gpu_worker/session/handlers/handlers.h"

namespace djinn::worker {

absl::Status HandleModel(SessionState& s, uint64_t sequence,
                         const v1::RegisterModel& model) {
  if (model.model_id() == 0) return Violation("model 0");
  if (model.name().size() > Models::kMaxNameBytes) {
    return Violation(absl::StrCat("a model's name of ", model.name().size(),
                                  " bytes, at most ", Models::kMaxNameBytes,
                                  " are allowed"));
  }
  absl::flat_hash_set<uint64_t> ids;
  uint64_t bytes = 0;
  std::vector<std::pair<Storage*, uint64_t>> shares;
  for (const uint64_t id : model.storages()) {
    Storage* const storage = s.storages.Find(id);
    if (storage == nullptr || !ids.insert(id).second) {
      return Violation(absl::StrCat(
          "model ", model.model_id(), " uses storage ", id,
          storage == nullptr ? ", which does not exist" : " twice"));
    }
    // Saturates, because a failed creation leaves a size that nothing has
    // checked.
    const uint64_t sum = SaturatingSum(bytes, storage->size_bytes);
    shares.emplace_back(storage, sum - bytes);
    bytes = sum;
  }
  if (model.storages().empty()) {
    s.models.Remove(model.model_id());
    return absl::OkStatus();
  }
  v1::ControlResponse response;
  v1::ModelRegistered* const registered = response.mutable_model_registered();
  registered->set_sequence(sequence);
  registered->set_size_bytes(bytes);
  const absl::Status status =
      s.models.Register(model.model_id(), model.name(), bytes);
  if (!status.ok()) {
    s.counts.Refused(status);
    *registered->mutable_refused() =
        *s.errors.Make(status, {.sequence = sequence});
  } else {
    const std::weak_ptr<ModelBytes> whole = s.models.BytesOf(model.model_id());
    for (const auto& [storage, share] : shares) {
      storage->Count(ModelShare(whole, share));
    }
  }
  Reply(s, std::move(response));
  return absl::OkStatus();
}

}  // namespace djinn::worker
