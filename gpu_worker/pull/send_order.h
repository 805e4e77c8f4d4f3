// Orders the values that other workers fetch.
//
// All values leave by the same link. While a value is being sent for a session
// of a higher priority class, or of the same class and tenant with an earlier
// deadline, the chunks of a value of lower precedence are held. One of them is
// sent after every kShare chunks that precede it, so that no value stands still
// however much precedes it. The same holds among values of one session that
// several workers fetch, in the order of transfer_order.h. The most critical
// ones move first, kTransfersAtOnce of them at a time. Those behind them get a
// chunk after every kShareBehind, so that the first ones arrive soon however
// many there are. A sender that has sent nothing for kStalled holds no other:
// its link is another one, or its receiver is slow.
//
// A value inherits the earliest deadline of the values of its session that are
// behind it. Otherwise three values could each wait for another one of them.
//
// Thread-safe. Makes no callbacks: a sender that is held asks again after
// kAskAgain.
#ifndef GPU_WORKER_PULL_SEND_ORDER_H_
#define GPU_WORKER_PULL_SEND_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "scheduler/placement/stages/transfer_order.h"

namespace djinn::worker {

// The precedence of a value, from the session that waits for it.
struct SendUrgency {
  std::string tenant;
  // A higher priority is sent sooner.
  int priority = 0;
  // When the run that waits for the value should begin, by the order's clock.
  absl::Duration deadline = absl::InfiniteDuration();
  // The session of the value, empty when it has none, and the value's rank
  // within it.
  std::string session_id;
  scheduler::TransferRank rank;
};

class SendOrder {
 public:
  static constexpr uint64_t kShare = 8;
  static constexpr uint64_t kShareBehind = 64;
  static constexpr absl::Duration kStalled = absl::Milliseconds(500);
  static constexpr absl::Duration kAskAgain = absl::Milliseconds(2);

  // `clock` must outlive this.
  explicit SendOrder(Clock* clock) : clock_(clock) {}

  absl::Duration Now() const { return clock_->Monotonic(); }

  // Adds a value that begins to move; returns its number, valid until End().
  uint64_t Begin(SendUrgency urgency);
  // Returns whether the next chunk may be sent, and counts it as sent.
  bool MaySend(uint64_t sender);
  void End(uint64_t sender);

  size_t senders() const;

 private:
  struct Sender {
    SendUrgency urgency;
    // When it sent its last chunk, or began.
    absl::Duration sent;
    // Chunks of preceding values sent since then.
    uint64_t passed_by = 0;
  };

  // IsAhead() returns whether both are values of one session and `a` moves
  // before `b`; IsMoreUrgent() returns whether `a` precedes `b`.
  static bool IsAhead(const SendUrgency& a, const SendUrgency& b);
  static bool IsMoreUrgent(const SendUrgency& a, const SendUrgency& b);

  Clock* const clock_;
  mutable Mutex mu_;
  uint64_t last_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<uint64_t, Sender> senders_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_PULL_SEND_ORDER_H_
