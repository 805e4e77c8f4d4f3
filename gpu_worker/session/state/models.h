// What the registered callables of one session keep using on this worker, by
// the ids that the client chose: how much each has, for the tenant's budget of
// models. Nothing is held here but numbers and names: the storages are the
// session's as ever, and take their shares along when they go.
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
  // In one session, whatever its tenant may have: each takes some hundred bytes
  // that no quota counts.
  static constexpr size_t kMaxModels = 1024;
  static constexpr size_t kMaxNameBytes = 256;
  // Of those that Report() names.
  static constexpr int kMaxReported = 16;

  // `account` outlives it.
  explicit Models(TenantAccount* account) : account_(account) {}
  ~Models() { Clear(); }
  Models(const Models&) = delete;
  Models& operator=(const Models&) = delete;

  // Registers the model, or registers it anew. ResourceExhausted (MODEL_BYTES,
  // MAX_MODELS) names limit, used and asked; what was registered under the id
  // stays then, and the refusal is counted.
  absl::Status Register(uint64_t id, absl::string_view name,
                        uint64_t size_bytes);
  // One that was registered on another worker, whatever the budget says. False
  // when it cannot be one.
  bool Adopt(const v1::ModelState& model);
  // For its storages' shares, which together have what it was registered with;
  // empty when there is none.
  std::weak_ptr<ModelBytes> BytesOf(uint64_t id) const;
  // Does nothing when there is none: it may have been refused.
  void Remove(uint64_t id);
  void Clear();

  // For operators, and for another worker.
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
