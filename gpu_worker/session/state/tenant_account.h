// Counts what one tenant's sessions on this worker share: device memory, the
// budget of models, and the room for messages, which attached sessions divide
// equally.
//
// Thread-safe.
#ifndef GPU_WORKER_SESSION_STATE_TENANT_ACCOUNT_H_
#define GPU_WORKER_SESSION_STATE_TENANT_ACCOUNT_H_

#include <atomic>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "djinn/v1/types.pb.h"
#include "gpu_worker/session/observe/served_time.h"
#include "gpu_worker/store/quota.h"

namespace djinn::worker {

struct WindowWidth;

class TenantAccount {
 public:
  // `end_lost` ends a session of the tenant whose client is away, where the
  // cap of its memory demands that; see TenantQuota.
  explicit TenantAccount(TenantQuota::EndLost end_lost = nullptr)
      : memory_({}, std::move(end_lost)) {}

  // Sets the limits. What is taken already stays.
  void SetLimits(const v1::TenantLimits& limits);

  TenantQuota* memory() { return &memory_; }
  // The device time of the tenant's sessions together.
  ServedTime::Tenant* served() { return &served_; }

  // The most storages that the tenant may have on this worker, whatever their
  // size: each takes some hundred bytes that no quota counts.
  static constexpr uint64_t kMaxStorages = 1 << 20;
  // Adds the change of a session's number of storages. Returns how many all
  // sessions have now.
  uint64_t AddStorages(int64_t more) {
    return storages_.fetch_add(static_cast<uint64_t>(more),
                               std::memory_order_relaxed) +
           static_cast<uint64_t>(more);
  }

  // Counts one more model. Returns ResourceExhausted (MAX_MODELS), which names
  // limit, used and asked.
  absl::Status AddModel();
  // Counts one more model whatever the limit says, because another worker
  // admitted it.
  void AdoptModel();
  void RemoveModels(uint64_t count);
  // Returns the most bytes that one model may keep using.
  uint64_t max_model_bytes() const;

  // Join() notes that a session has a stream, and Leave() that it has none any
  // more.
  void Join();
  void Leave();

  // Returns the window of one attached session: its own limits, or its share of
  // the tenant's where that is less. The window is at least one message and one
  // byte, so that every session makes progress.
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
