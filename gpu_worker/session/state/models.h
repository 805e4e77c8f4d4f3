// Counts what the resident models of one session keep using on this worker, by
// the ids that the client chose, for the tenant's budget of models. It holds
// only numbers and names: the session owns the storages, and each storage takes
// its share along when it is destroyed.
//
// Thread-safe.
#ifndef GPU_WORKER_SESSION_STATE_MODELS_H_
#define GPU_WORKER_SESSION_STATE_MODELS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "djinn/v1/session_state.pb.h"
#include "djinn/v1/usage.pb.h"
#include "gpu_worker/session/state/tenant_account.h"
#include "gpu_worker/store/model_share.h"

namespace djinn::worker {

class Models {
 public:
  // Limits of one session, independent of its tenant's: each model takes some
  // hundred bytes that no quota counts.
  static constexpr size_t kMaxModels = 1024;
  static constexpr size_t kMaxNameBytes = 256;
  // The most models that Report() names.
  static constexpr int kMaxReported = 16;

  // `account` must outlive this.
  explicit Models(TenantAccount* account) : account_(account) {}
  ~Models() { Clear(); }
  Models(const Models&) = delete;
  Models& operator=(const Models&) = delete;

  // Registers the model, or replaces it. Returns ResourceExhausted
  // (MODEL_BYTES, MAX_MODELS), which names limit, used and asked; then the
  // model registered under the id stays, and the refusal is counted.
  absl::Status Register(uint64_t id, absl::string_view name,
                        uint64_t size_bytes);
  // Registers a model that another worker admitted, whatever the budget says.
  // Returns false when its name or id is not valid.
  bool Adopt(const v1::ModelState& model);
  // Returns the model's bytes, for its storages' shares, which together are the
  // registered size. Empty when there is no such model.
  std::weak_ptr<ModelBytes> BytesOf(uint64_t id) const;
  // Removes the model. Does nothing when there is none: it may have been
  // refused.
  void Remove(uint64_t id);
  void Clear();

  // These describe the models to operators, and to another worker.
  void Report(v1::SessionUse* use) const;
  void Describe(v1::SessionState* state) const;

 private:
  struct Model {
    Model(absl::string_view name, uint64_t size_bytes)
        : name(name), bytes(std::make_shared<ModelBytes>(size_bytes)) {}

    std::string name;
    std::shared_ptr<ModelBytes> bytes;
  };

  TenantAccount* const account_;
  mutable Mutex mu_;
  std::map<uint64_t, Model> models_ ABSL_GUARDED_BY(mu_);
  uint64_t refused_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_MODELS_H_
