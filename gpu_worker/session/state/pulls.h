// Fetches values for a session from other workers, or from other sessions here,
// one after the other: makes room, receives the bytes, and keeps the outcome.
//
// Begin() starts a fetch. Once it is settled(), Finish() has the outcome, and
// the next one may begin.
//
// Begin(), Finish() and Forget() belong to the thread that executes the
// session; any thread may call everything else. No callback runs with a lock
// held.
#ifndef GPU_WORKER_SESSION_STATE_PULLS_H_
#define GPU_WORKER_SESSION_STATE_PULLS_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "djinn/v1/pull.pb.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gpu_worker/session/base/session_environment.h"
#include "gpu_worker/session/state/incoming_pull.h"
#include "gpu_worker/store/ledger.h"

namespace djinn::worker {

// The reason of the error of a value that was not fetched.
inline constexpr char kPullFailed[] = "PULL_FAILED";

class Pulls {
 public:
  struct Pulled {
    // A failure names both workers: PULL_FAILED.
    IncomingPull::Outcome outcome;
    // Accounts for the received buffer; null when it was on this worker
    // already.
    std::shared_ptr<Reservation> reservation;
    // The rate of the link by now, if this value could be measured.
    std::optional<v1::PeerLink> link;
  };
  struct Awaited {
    absl::Duration since;
    std::string worker_id;
  };

  // `environment` must outlive this. `settled` is called when a value may have
  // arrived.
  Pulls(const SessionEnvironment* environment, std::string session_id,
        std::string tenant, std::function<void()> settled)
      : environment_(*environment),
        session_id_(std::move(session_id)),
        tenant_(std::move(tenant)),
        settled_(std::move(settled)) {}

  // --- The thread that executes the session.

  // Makes room and starts the fetch. Returns RESOURCE_EXHAUSTED when there is
  // no room.
  absl::Status Begin(const v1::Pull& pull);
  Pulled Finish();
  // Gives up the fetch under way, if any.
  void Forget();

  // --- Any thread.

  // Gives up a fetch that made no progress for too long.
  void CheckDeadline();
  bool settled() const;
  // Returns the fetch under way; nothing once it is settled.
  std::optional<Awaited> awaited() const;

 private:
  struct Pull {
    std::string worker_id;
    std::shared_ptr<IncomingPull> incoming;
    std::shared_ptr<Reservation> reservation;
    absl::Duration started;
  };

  Pull Take();

  const SessionEnvironment& environment_;
  const std::string session_id_;
  const std::string tenant_;
  const std::function<void()> settled_;
  mutable Mutex mu_;
  // No fetch is under way when `incoming` is null.
  Pull pull_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_PULLS_H_
