// Makes sessions from leases: gives each its tenant's account and a place in
// the queue for the device.
//
// Thread-safe.
#ifndef GPU_WORKER_STREAMS_SESSION_FACTORY_H_
#define GPU_WORKER_STREAMS_SESSION_FACTORY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "gpu_worker/executor/turn_queue.h"
#include "gpu_worker/leases/lease_table.h"
#include "gpu_worker/session/base/session_environment.h"
#include "gpu_worker/session/session.h"
#include "gpu_worker/session/state/tenant_account.h"

namespace djinn::worker {

class SessionFactory {
 public:
  // Both must outlive the factory and its sessions. `end_lost` ends a session
  // of the tenant whose client is away, as TenantQuota::EndLost says.
  SessionFactory(
      const SessionEnvironment* environment, TurnQueue* queue,
      std::function<bool(const std::string& tenant, uint64_t missing)> end_lost)
      : environment_(environment),
        queue_(queue),
        end_lost_(std::move(end_lost)) {}

  // Makes a session that has joined the queue under the key, which no other
  // session has. The session calls `fail` once, without locks, if its client
  // breaks the protocol.
  std::shared_ptr<Session> Make(const Lease& lease, uint64_t queue_key,
                                std::function<void(absl::Status)> fail);
  // Applies the tenant's new limits, if the tenant has sessions here.
  void UpdateTenant(const v1::LeaseClaims& claims);
  // Applies the new claims of the session's lease.
  void Update(const v1::LeaseClaims& claims, uint64_t queue_key,
              Session* session);

 private:
  std::shared_ptr<TenantAccount> AccountOf(const v1::LeaseClaims& lease);

  const SessionEnvironment* const environment_;
  TurnQueue* const queue_;
  const std::function<bool(const std::string&, uint64_t)> end_lost_;
  Mutex mu_;
  // The accounts by tenant. An account that no session uses is forgotten.
  absl::flat_hash_map<std::string, std::weak_ptr<TenantAccount>> accounts_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_STREAMS_SESSION_FACTORY_H_
