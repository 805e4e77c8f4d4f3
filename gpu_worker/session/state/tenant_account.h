// What one tenant's sessions on this worker share: device memory, the budget of
// models, and the room for messages, which is shared out equally among those
// that are attached.
//
// Thread-safe.
#ifndef GPU_WORKER_SESSION_STATE_TENANT_ACCOUNT_H_
#define GPU_WORKER_SESSION_STATE_TENANT_ACCOUNT_H_

#include <atomic>
#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "djinn/v1/types.pb.h"
#include "gpu_worker/session/observe/served_time.h"
#include "gpu_worker/session/state/inbox.h"
#include "gpu_worker/store/ledger.h"

namespace djinn::worker {

class TenantAccount {
 public:
  // The limits from now on. What is taken already stays.
  void SetLimits(const v1::TenantLimits& limits);

  TenantQuota* memory() { return &memory_; }
  // What its sessions have had of the device, together.
  ServedTime::Tenant* served() { return &served_; }

  // Storages that the tenant may have on this worker, whatever their size: each
  // takes some hundred bytes that no quota counts.
  static constexpr uint64_t kMaxStorages = 1 << 20;
  // A session has so many more, or fewer. How many all have now.
  uint64_t AddStorages(int64_t more) {
    return storages_.fetch_add(static_cast<uint64_t>(more),
                               std::memory_order_relaxed) +
           static_cast<uint64_t>(more);
  }

  // A session registers one more model. ResourceExhausted (MAX_MODELS) names
  // limit, used and asked.
  absl::Status AddModel();
  // Likewise, whatever the limit says: another worker let it have the model.
  void AdoptModel();
  void RemoveModels(uint64_t count);
  // What one model may keep using.
  uint64_t max_model_bytes() const;

  // A session has a stream, or has none any more.
  void Join();
  void Leave();

  // The window of one attached session: its own limits, or its share of the
  // tenant's where that is less. One message and one byte at least, so that
  // every session goes on.
  WindowWidth Share(const v1::SessionLimits& limits) const;

 private:
  TenantQuota memory_;
  ServedTime::Tenant served_;
  std::atomic<uint64_t> storages_{0};
  mutable Mutex mu_;
  uint64_t max_messages_ ABSL_GUARDED_BY(mu_) =
      std::numeric_limits<uint64_t>::max();
  uint64_t max_bytes_ ABSL_GUARDED_BY(mu_) =
      std::numeric_limits<uint64_t>::max();
  uint64_t attached_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t max_models_ ABSL_GUARDED_BY(mu_) =
      std::numeric_limits<uint64_t>::max();
  uint64_t max_model_bytes_ ABSL_GUARDED_BY(mu_) =
      std::numeric_limits<uint64_t>::max();
  uint64_t models_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_TENANT_ACCOUNT_H_
