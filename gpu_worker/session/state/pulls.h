// What a session gets from other workers, or from other parts of it here, one
// value after the other: room for it, the bytes as they come, and what became
// of them.
//
// Begin() has it fetched; once it is settled(), Finish() has the outcome, and
// the next one may begin.
//
// Begin(), Finish() and Forget() belong to whoever executes the session;
// everything else may be called by any thread. Nothing is called back with a
// lock held.
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
#include "djinn/v1/execution.pb.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gpu_worker/session/base/session_environment.h"
#include "gpu_worker/session/state/incoming_pull.h"
#include "gpu_worker/store/ledger.h"

namespace djinn::worker {

class Pulls {
 public:
  struct Pulled {
    // Its failure says who could not fetch from whom: PULL_FAILED.
    IncomingPull::Outcome outcome;
    // Of the buffer's way here; null when it was here before.
    std::shared_ptr<Reservation> reservation;
    // What is known of the link by now, if the value could be measured.
    std::optional<v1::PeerLink> link;
  };
  struct Awaited {
    absl::Duration since;
    std::string worker_id;
  };

  // `environment` outlives it; `settled` is called when a value may have come.
  Pulls(const SessionEnvironment* environment, std::string session_id,
        std::string tenant, std::function<void()> settled)
      : environment_(*environment),
        session_id_(std::move(session_id)),
        tenant_(std::move(tenant)),
        settled_(std::move(settled)) {}

  // --- Whoever executes the session.
  // Makes room and has the value fetched. RESOURCE_EXHAUSTED: it is not.
  absl::Status Begin(const v1::Pull& pull);
  Pulled Finish();
  // Gives up what is under way, if anything.
  void Forget();

  // --- Any thread.
  // Gives up a value of which nothing was heard for too long.
  void CheckDeadline();
  bool settled() const;
  // Nothing once it is settled.
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
  // Nothing is under way while it has no `incoming`.
  Pull pull_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_PULLS_H_
