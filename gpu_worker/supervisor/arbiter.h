// Divides the turns on one device among executor processes.
//
// The executor with the least weighted time goes next, as in the queue of one
// process (start-time fair queueing). Time counts only while another executor
// waits. A thread of the arbiter hands the device over, between two turns.
//
// An executor whose turn takes longer than kPatience, while another one waits,
// loses its exclusive use: the other one begins beside it, and the operating
// system divides the processors between them. So no executor can keep the
// device, whatever it writes to its word. It is charged for the whole turn, and
// by half for the time that it shared with others.
//
// Thread-safe.
#ifndef GPU_WORKER_SUPERVISOR_ARBITER_H_
#define GPU_WORKER_SUPERVISOR_ARBITER_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/transport/shared_memory/shared_region.h"
#include "gpu_worker/supervisor/turn_word.h"

namespace djinn::worker {

class Arbiter {
 public:
  static constexpr absl::Duration kPatience = absl::Seconds(2);

  // Descriptors for the executor's SharedTurnGate.
  struct Seat {
    Descriptor word;
    // The writing end of a pipe.
    Descriptor event;
  };

  // `clock` must outlive the arbiter.
  explicit Arbiter(Clock* clock);
  ~Arbiter();

  // Adds an executor, with weight 1.
  absl::StatusOr<Seat> Add(uint64_t number);
  void SetWeight(uint64_t number, double weight);
  // Returns which of the leases an executor that has ended was serving.
  std::set<std::string> ServedBy(uint64_t number,
                                 absl::Span<const std::string> lease_ids) const;
  // Removes an executor that has ended, and gives its turn to another one.
  void Remove(uint64_t number);
  // Has the arbiter look at the clock.
  void Wake() { RaiseEvent(wake_.get()); }
  // Returns how often the device has changed hands, and how often it did so
  // before the turn's end.
  uint64_t handovers() const { return handovers_; }
  uint64_t overdue_turns() const { return overdue_turns_; }

 private:
  struct Member;

  void Run();
  // Takes back and grants the turns that can be taken back or granted now.
  void Decide() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the waiting executor that goes next, or null.
  Member* Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Charge() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetHolder(uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Clock* const clock_;
  const Descriptor wake_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> handovers_{0};
  std::atomic<uint64_t> overdue_turns_{0};

  mutable Mutex mu_;
  std::map<uint64_t, std::shared_ptr<Member>> members_ ABSL_GUARDED_BY(mu_);
  // The executor that has the device; 0 for none.
  uint64_t holder_ ABSL_GUARDED_BY(mu_) = 0;
  // The time since which another executor waits for the holder; infinite while
  // none waits.
  absl::Duration contended_since_ ABSL_GUARDED_BY(mu_) =
      absl::InfiniteDuration();
  // The start tag of the last grant.
  double virtual_time_ ABSL_GUARDED_BY(mu_) = 0;
  std::thread thread_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_ARBITER_H_
