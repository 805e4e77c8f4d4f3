// Says whose session it is, what its lease asks for, and how it stands.
#ifndef GPU_WORKER_SESSION_STATE_SESSION_IDENTITY_H_
#define GPU_WORKER_SESSION_STATE_SESSION_IDENTITY_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "djinn/v1/lease.pb.h"
#include "djinn/v1/notes.pb.h"
#include "djinn/v1/types.pb.h"
#include "gpu_worker/leases/lease_meter.h"
#include "gpu_worker/leases/lease_turn.h"
#include "gpu_worker/leases/traffic.h"
#include "gpu_worker/session/base/session_environment.h"
#include "gpu_worker/session/observe/run_records.h"
#include "gpu_worker/session/state/tenant_account.h"

namespace djinn::worker {

struct SessionCallbacks {
  // Called when there may be work again. May outlive the session.
  std::function<void()> runnable;
  // Called when the client broke the protocol: closes its stream with this
  // status.
  std::function<void(absl::Status)> fail;
  // Called when the session's runs are of another phase, and perhaps priority,
  // from this one on.
  std::function<void()> phase;
};

// Identifies the session and its owner. Constant.
struct SessionIdentity {
  const SessionEnvironment& environment;
  const std::string session_id;
  const std::string tenant;
  const v1::SessionLimits limits;
  const SessionCallbacks callbacks;
  const std::shared_ptr<TenantAccount> account;
  const std::shared_ptr<LeaseMeter> meter;
  // The session as records of other sessions name it.
  const std::shared_ptr<const RunPeer> peer;

  Traffic& traffic() const { return *meter->traffic(); }
};

// The requests of the session's lease, and the session's present status.
// Thread-safe: atomics.
struct SessionStatus {
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  // The priority class that the lease declares.
  std::atomic<v1::PriorityClass> declared{v1::PRIORITY_CLASS_UNSPECIFIED};
  // How long runs may wait before they begin, in nanoseconds.
  std::atomic<int64_t> run_deadline{kNever};
  // The phase of the last run that was executed; later work counts with it.
  // Unspecified before the first run.
  std::atomic<v1::Phase> phase{v1::PHASE_UNSPECIFIED};
  // True when the remaining nodes of a run must be left out.
  std::atomic<bool> stopped{false};
  // True when the client gave up what is not executed.
  std::atomic<bool> cancelled{false};
  std::atomic<uint64_t> storages{0};
  std::atomic<uint32_t> graphs{0};
  // The room for eager uploads that was last reported to the client.
  std::atomic<uint64_t> reported_room{0};

  int priority() const {
    return PriorityOf(declared.load(std::memory_order_relaxed),
                      phase.load(std::memory_order_relaxed));
  }
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_SESSION_IDENTITY_H_
