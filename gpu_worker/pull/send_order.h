// Which of the values that other workers fetch moves first.
//
// All of them leave by the same link. While a value is on its way for a session
// of a higher priority class, or of the same class and tenant with an earlier
// deadline, the chunks of one for a less urgent session are held: each is let
// go after kShare chunks of more urgent ones, so that nothing stands still
// however much that is urgent comes. The same among values of one session that
// several workers fetch, in the order of transfer_order.h: the most critical
// ones first, of which kTransfersAtOnce move; those behind them get a chunk
// after kShareBehind, so that however many there are, these come soon. A sender
// that has sent nothing for kStalled holds nobody: its link is another one, or
// its receiver is slow.
//
// A session's values are as urgent as the most urgent behind them: without that
// three values could each wait for another one of them.
//
// Thread-safe. Calls nobody: who is held asks again after kAskAgain.
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

// Of a session whose value moves.
struct SendUrgency {
  std::string tenant;
  // Higher is sooner.
  int priority = 0;
  // When what waits for it should begin, by the order's clock.
  absl::Duration deadline = absl::InfiniteDuration();
  // Whose value it is; empty: nobody's in particular. And which of its values
  // goes first.
  std::string session_id;
  scheduler::TransferRank rank;
};

class SendOrder {
 public:
  static constexpr uint64_t kShare = 8;
  static constexpr uint64_t kShareBehind = 64;
  static constexpr absl::Duration kStalled = absl::Milliseconds(500);
  static constexpr absl::Duration kAskAgain = absl::Milliseconds(2);

  // Outlived by the clock.
  explicit SendOrder(Clock* clock) : clock_(clock) {}

  absl::Duration Now() const { return clock_->Monotonic(); }

  // A value begins to move; its number until End().
  uint64_t Begin(SendUrgency urgency);
  // Whether the next chunk may be sent; it is then taken to be.
  bool MaySend(uint64_t sender);
  void End(uint64_t sender);

  size_t senders() const;

 private:
  struct Sender {
    SendUrgency urgency;
    // Its last chunk, or its beginning.
    absl::Duration sent;
    // Chunks of more urgent ones since then.
    uint64_t passed_by = 0;
  };

  // Of one session, and ahead.
  static bool IsAhead(const SendUrgency& a, const SendUrgency& b);
  static bool IsMoreUrgent(const SendUrgency& a, const SendUrgency& b);

  Clock* const clock_;
  mutable Mutex mu_;
  uint64_t last_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<uint64_t, Sender> senders_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_PULL_SEND_ORDER_H_
