// What keeps a session's runs from being executed, moment by moment, in sums
// since the session began: what one run waited for is the difference of two
// readings, however many others waited at the same time.
//
// At any moment the session is at one gate. While it waits for its turn
// (RUN_GATE_WORKER), the time is told apart by whom the device serves. What is
// settled outside the session is noted in a mark of its own, by any thread.
//
// Not thread-safe, but for the mark. Times are by the worker's monotonic clock;
// one that is earlier than the last counts as that.
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
  // By gate, in nanoseconds.
  using Times = std::array<int64_t, v1::RunGate_ARRAYSIZE>;

  // What the session waited for may have come: it waits for its turn since
  // then. May outlive the gates; `served` and the tenant outlive it.
  class Mark {
   public:
    Mark(const ServedTime* served,
         std::shared_ptr<const ServedTime::Tenant> tenant)
        : served_(served), tenant_(std::move(tenant)) {}
    // Any thread, under any lock.
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

  // `served` may be null: then turns are not told apart. It outlives this.
  RunGates(const ServedTime* served,
           std::shared_ptr<const ServedTime::Tenant> tenant)
      : mark_(std::make_shared<Mark>(served, std::move(tenant))) {}

  // The session is at `gate` from `now` on; RUN_GATE_UNSPECIFIED while it has
  // nothing to do. Returns everything until then; valid until the next call.
  const Times& Enter(v1::RunGate gate, absl::Duration now);
  // Likewise, without a change.
  const Times& At(absl::Duration now);

  // As last entered, and since when.
  v1::RunGate gate() const { return gate_; }
  absl::Duration since() const { return absl::Nanoseconds(entered_); }
  // The same, with turns told apart by whom the device serves at this moment.
  v1::RunGate Now();

  const std::shared_ptr<Mark>& mark() const { return mark_; }

 private:
  // Takes note of what was settled meanwhile.
  void Look();
  void EnterWith(v1::RunGate gate, int64_t now,
                 const ServedTime::Reading& reading);
  // Adds what has passed until `now`, at which this is read.
  void AddPassed(int64_t now, const ServedTime::Reading& reading);

  const std::shared_ptr<Mark> mark_;
  v1::RunGate gate_ = v1::RUN_GATE_UNSPECIFIED;
  int64_t entered_ = 0;
  // Until since_, as it was read then if the session waits for its turn.
  Times times_ = {};
  int64_t since_ = 0;
  ServedTime::Reading reading_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_OBSERVE_RUN_GATES_H_
