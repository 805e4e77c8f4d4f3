// Decides which thread receives from a connection: the connection's own thread,
// or a thread that waits for a message on it, called the attendant. An
// attendant that receives by itself saves a switch between threads.
//
// Receiving is a role that belongs to the connection's thread at first. After
// that thread received a message that others may have waited for, it lends the
// role to an attendant. While the role is lent and no attendant has it,
// messages wait for the next attendant. The thread checks every few
// milliseconds, and takes the role back if no attendant came.
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
  // The result of Take(). kTaken: the caller has the role until Leave(). kOver:
  // the awaited message may have come, or `patience` has passed. kRefused:
  // another thread waits already, or the connection ends.
  enum class Turn { kTaken, kOver, kRefused };

  // Takes the role for an attendant, or waits for it. `done` is called without
  // the lock.
  Turn Take(absl::FunctionRef<bool()> done, absl::Duration patience);
  // Returns whether the holder of the role should leave it.
  bool recalled() const { return recalled_; }
  // Counts the events after which an attendant should call `done` again.
  uint64_t nudges() const { return nudges_; }
  // Gives the role up. Called by the attendant that has it.
  void Leave();

  // Lends the role if an attendant wants it, and returns when the thread has it
  // again. Called by the connection's thread after it received a message.
  void Lend();
  // Keeps the role despite a Recall(). Called by the connection's thread.
  void Keep();

  // Nudge() tells attendants that the awaited message may have come another
  // way. Recall() gives the role back to the connection's thread. Any thread
  // may call both. They return the holder of the role, which the caller then
  // wakes, because only the caller knows where it sleeps.
  Holder Nudge();
  Holder Recall();
  // Ends the connection: no thread attends any more.
  void End();

 private:
  // Time for which the role stays lent without a holder.
  static constexpr absl::Duration kLent = absl::Milliseconds(2);

  void NudgeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AwaitTurn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  Holder holder_ ABSL_GUARDED_BY(mu_) = Holder::kThread;
  uint64_t attendances_ ABSL_GUARDED_BY(mu_) = 0;
  // The connection's thread sleeps until the attendant leaves.
  bool resting_ ABSL_GUARDED_BY(mu_) = false;
  CondVar turn_;  // wakes the connection's thread
  // An attendant waits for the role, or has done so since it was last lent.
  bool waiting_ ABSL_GUARDED_BY(mu_) = false;
  bool wanted_ ABSL_GUARDED_BY(mu_) = false;
  CondVar offered_;  // wakes the waiting attendant
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  // Written under the lock.
  std::atomic<uint64_t> nudges_{0};
  std::atomic<bool> recalled_{false};
};

}  // namespace djinn

#endif  // COMMON_TRANSPORT_RECEIVER_ROLE_H_
