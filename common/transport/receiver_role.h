// Who receives from a connection: its own thread, or one that waits for what
// comes over it, which saves the change from the one to the other.
//
// Receiving is a role, which the thread has at first. Once it received
// something that others may have waited for, it lends the role to whoever
// attends. While the role is lent and nobody has it, what comes waits for the
// next attendant, or until the thread, which looks every few milliseconds,
// finds that none came and takes the role back.
//
// Thread-safe.
#ifndef COMMON_TRANSPORT_RECEIVER_ROLE_H_
#define COMMON_TRANSPORT_RECEIVER_ROLE_H_

#include <atomic>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace djinn {

class ReceiverRole {
 public:
  enum class Holder { kThread, kAttendant, kNobody };
  // What came of an attempt to attend: the role is the caller's until Leave();
  // what it waits for may have come, or its patience is over; or another waits
  // already, or the connection ends.
  enum class Turn { kTaken, kOver, kRefused };

  // `done` is asked without the lock.
  Turn Take(absl::FunctionRef<bool()> done, absl::Duration patience);
  // Whether the one that has the role should leave.
  bool recalled() const { return recalled_; }
  // Counts what an attendant should ask `done` for.
  uint64_t nudges() const { return nudges_; }
  // An attendant's, which has no use for the role any more.
  void Leave();

  // The thread's, which has received something: lends the role where it is
  // wanted, and returns when the thread has it again.
  void Lend();
  // The thread's, which goes on by itself.
  void Keep();

  // Somebody's: what attendants wait for may have come another way; or the
  // thread should have the role. Whoever has it sleeps somewhere that is known
  // to the caller alone, who wakes it.
  Holder Nudge();
  Holder Recall();
  // Nobody attends any more.
  void End();

 private:
  // How long the role is lent without anybody having it.
  static constexpr absl::Duration kLent = absl::Milliseconds(2);

  void NudgeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AwaitTurn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  Holder holder_ ABSL_GUARDED_BY(mu_) = Holder::kThread;
  uint64_t attendances_ ABSL_GUARDED_BY(mu_) = 0;
  // The thread sleeps until the attendant leaves.
  bool resting_ ABSL_GUARDED_BY(mu_) = false;
  CondVar turn_;  // the thread's
  // Somebody waits for the role, or has lately.
  bool waiting_ ABSL_GUARDED_BY(mu_) = false;
  bool wanted_ ABSL_GUARDED_BY(mu_) = false;
  CondVar offered_;  // whoever waits
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  // Written under the lock.
  std::atomic<uint64_t> nudges_{0};
  std::atomic<bool> recalled_{false};
};

}  // namespace djinn

#endif  // COMMON_TRANSPORT_RECEIVER_ROLE_H_
