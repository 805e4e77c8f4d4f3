// Decides which thread receives from a connection: the connection's own thread,
// or a thread that waits for a message on it, called the leader. A leader that
// receives by itself saves a switch between threads (the pattern
// "leader/followers").
//
// Receiving is a role that belongs to the connection's thread at first. After
// that thread received a message that others may have waited for, it lends the
// role to a leader. While the role is lent and no leader has it,
// messages wait for the next leader. The thread checks every few
// milliseconds, and takes the role back if no leader came.
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
  enum class Holder { kThread, kLeader, kNobody };
  // The result of Take(). kTaken: the caller has the role until Leave(). kOver:
  // the awaited message may have come, or `patience` has passed. kRefused:
  // another thread waits already, or the connection ends.
  enum class Turn { kTaken, kOver, kRefused };

  // Takes the role for a leader, or waits for it. `done` is called without
  // the lock.
  Turn Take(absl::FunctionRef<bool()> done, absl::Duration patience);
  // Returns whether the holder of the role should leave it.
  bool reclaimed() const { return reclaimed_; }
  // Counts the events after which a leader should call `done` again.
  uint64_t wakes() const { return wakes_; }
  // Gives the role up. Called by the leader that has it.
  void Leave();

  // Lends the role if a leader wants it, and returns when the thread has it
  // again. Called by the connection's thread after it received a message.
  void Lend();
  // Keeps the role despite a Reclaim(). Called by the connection's thread.
  void Keep();

  // Wake() tells leaders that the awaited message may have come another
  // way. Reclaim() gives the role back to the connection's thread. Any thread
  // may call both. They return the holder of the role, which the caller then
  // wakes, because only the caller knows where it sleeps.
  Holder Wake();
  Holder Reclaim();
  // Ends the connection: no thread leads any more.
  void End();

 private:
  // Time for which the role stays lent without a holder.
  static constexpr absl::Duration kLent = absl::Milliseconds(2);

  void WakeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AwaitTurn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  Holder holder_ ABSL_GUARDED_BY(mu_) = Holder::kThread;
  uint64_t leaderships_ ABSL_GUARDED_BY(mu_) = 0;
  // The connection's thread sleeps until the leader leaves.
  bool resting_ ABSL_GUARDED_BY(mu_) = false;
  CondVar turn_;  // wakes the connection's thread
  // A leader waits for the role, or has done so since it was last lent.
  bool waiting_ ABSL_GUARDED_BY(mu_) = false;
  bool wanted_ ABSL_GUARDED_BY(mu_) = false;
  CondVar offered_;  // wakes the waiting leader
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  // Written under the lock.
  std::atomic<uint64_t> wakes_{0};
  std::atomic<bool> reclaimed_{false};
};

}  // namespace djinn

#endif  // COMMON_TRANSPORT_RECEIVER_ROLE_H_
