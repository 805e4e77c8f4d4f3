// Sums up what keeps a session's runs from being executed, moment by moment
// since the session began. The waits of one run are the difference of two
// readings, however many others waited at the same time.
//
// At any moment the session is at one gate. While it waits for its turn
// (RUN_GATE_WORKER), the time is divided by whom the device serves. Any thread
// notes an event outside the session in a mark.
//
// Not thread-safe, except for the mark. Times are by the worker's monotonic
// clock; a time before the last one counts as the last one.
#ifndef GPU_WORKER_SESSION_OBSERVE_RUN_GATES_H_
#define GPU_WORKER_SESSION_OBSERVE_RUN_GATES_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "djinn/v1/runs.pb.h"
#include "gpu_worker/session/observe/served_time.h"

namespace djinn::worker {

class RunGates {
 public:
  // Nanoseconds by gate.
  using Times = std::array<int64_t, v1::RunGate_ARRAYSIZE>;

  // Notes since when the session waits for its turn, because what it waited for
  // may have arrived. May outlive the gates; `served` and the tenant must
  // outlive it.
  class Mark {
   public:
    Mark(const ServedTime* served,
         std::shared_ptr<const ServedTime::Tenant> tenant)
        : served_(served), tenant_(std::move(tenant)) {}
    // Any thread may call it, under any lock.
    void Settled(absl::Duration now);

   private:
    friend class RunGates;
    ServedTime::Reading Read(int64_t now) const {
      return served_ == nullptr ? ServedTime::Reading()
                                : served_->ReadAt(tenant_.get(), now);
    }

    const ServedTime* const served_;
    const std::shared_ptr<const ServedTime::Tenant> tenant_;
    std::atomic<bool> set_{false};
    Mutex mu_;
    absl::Duration at_ ABSL_GUARDED_BY(mu_);
    ServedTime::Reading reading_ ABSL_GUARDED_BY(mu_);
  };

  // `served` may be null: then waits for a turn are not divided. Otherwise it
  // must outlive this.
  RunGates(const ServedTime* served,
           std::shared_ptr<const ServedTime::Tenant> tenant)
      : mark_(std::make_shared<Mark>(served, std::move(tenant))) {}

  // Puts the session at `gate` from `now` on; RUN_GATE_UNSPECIFIED while it has
  // nothing to do. Returns the times until then, valid until the next call.
  const Times& Enter(v1::RunGate gate, absl::Duration now);
  // Returns the times until `now`, valid until the next call.
  const Times& At(absl::Duration now);

  // These return the gate that was entered last, and when.
  v1::RunGate gate() const { return gate_; }
  absl::Duration since() const { return absl::Nanoseconds(entered_); }
  // Returns the current gate; for RUN_GATE_WORKER, the gate of whom the device
  // serves at this moment.
  v1::RunGate Now();

  const std::shared_ptr<Mark>& mark() const { return mark_; }

 private:
  // Takes the mark into account.
  void Look();
  void EnterWith(v1::RunGate gate, int64_t now,
                 const ServedTime::Reading& reading);
  // Adds the time that has passed until `now`, when `reading` was taken.
  void AddPassed(int64_t now, const ServedTime::Reading& reading);

  const std::shared_ptr<Mark> mark_;
  v1::RunGate gate_ = v1::RUN_GATE_UNSPECIFIED;
  int64_t entered_ = 0;
  // The times until since_. reading_ is of that moment if the session waits for
  // its turn.
  Times times_ = {};
  int64_t since_ = 0;
  ServedTime::Reading reading_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_OBSERVE_RUN_GATES_H_
