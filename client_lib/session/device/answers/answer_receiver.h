// Decides which thread receives from the stream to the worker, and keeps the
// stream alive for the threads that use it.
//
// The stream has a thread of its own that receives, but a thread that waits for
// an answer may become a leader and receive in its place, which saves a thread
// switch. Every other waiting thread is a follower: it sleeps until a callback
// of the stream signals it. A leader that returns may leave the stream without
// a thread that receives at once. So it calls the stream's Reclaim() if there
// are followers, and a follower calls it before it sleeps if there is no
// leader.
//
// Thread-safe: its own lock guards the stream and the counts of its users. No
// other lock is taken, and no stream called, under it. The thread that destroys
// the stream is the device's own, or the one that ends the device.
#ifndef CLIENT_LIB_SESSION_DEVICE_ANSWERS_ANSWER_RECEIVER_H_
#define CLIENT_LIB_SESSION_DEVICE_ANSWERS_ANSWER_RECEIVER_H_

#include <atomic>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "client_lib/session/model/wait.h"
#include "common/base/mutex.h"
#include "common/transport/stream.h"

namespace djinn {

class AnswerReceiver {
 public:
  AnswerReceiver() = default;
  // Leaks the stream in a forked child, which does not have its threads.
  ~AnswerReceiver();

  // Limit on the time that a thread leads before it checks its deadline.
  static constexpr absl::Duration kLeading = absl::Milliseconds(100);

  // --- For the thread that opens and ends streams ---

  // Takes a stream that is about to start. There must be none.
  void Begin(std::unique_ptr<ClientStream> stream);
  // Says whether threads may receive from the stream, because the worker has
  // answered the hello and the stream has not ended. Every caller holds the
  // connection's lock, so that connected() is constant under that lock.
  void SetConnected(bool connected);
  bool connected() const { return connected_; }
  // Returns whether a leader also receives chunks of values on Bulk. Constant
  // while the stream exists.
  bool leads_bulk() const { return leads_bulk_; }
  // Returns the stream, which may be null. Only for a thread that prevents its
  // end: the sender, or a callback of the stream.
  ClientStream* stream() const;
  // Waits until the deadline for the users to leave, and moves the stream to
  // `ended`. Returns false, without effect, if a user stayed.
  bool End(const Deadline& deadline, std::unique_ptr<ClientStream>* ended);
  void AwaitNoUsers(const Deadline& deadline);
  // Leaks the stream, because a user stayed.
  void Leak();

  // --- For threads that use the stream without being the sender ---

  // Returns the stream, which may be null, and keeps it alive until Leave().
  ClientStream* Enter();
  // Returns null, without effect, while no stream is connected.
  ClientStream* EnterConnected();
  void Leave();

  // --- For threads that wait for an answer ---

  // Waits until something may have changed; the caller checks its condition
  // again. `done` is called with `mu` held, which this method may release and
  // take again at any point. A leader runs the stream's callbacks without `mu`,
  // until `done` or for kLeading. A follower waits for `changed` until the
  // deadline. Other threads signal `changed` only for conditions that `done`
  // checks. A leader is not woken by it: what ends its wait comes as a message,
  // ends the stream, or is seen when it stops to lead. A thread with `may_lead`
  // false, or on a stream that refuses it, is a follower.
  void WaitOrReceive(Mutex* mu, CondVar* changed,
                     absl::FunctionRef<bool()> done, const Deadline& deadline,
                     bool may_lead) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Returns whether a thread leads, or is about to. True in the callbacks that
  // a leader runs.
  bool led() const;
  // Makes the stream's own thread receive at once. Call it when a callback
  // rather than a thread awaits an answer.
  void Reclaim();

 private:
  // Leads if the stream allows it. Returns whether something may have come.
  bool Lead(Mutex* mu, absl::FunctionRef<bool()> done,
            const Deadline& deadline);
  void LeaveLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  std::unique_ptr<ClientStream> stream_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> connected_{false};  // written under both locks
  std::atomic<bool> leads_bulk_{true};
  int users_ ABSL_GUARDED_BY(mu_) = 0;
  CondVar left_;  // signalled when a user leaves
  int leaders_ ABSL_GUARDED_BY(mu_) = 0;
  int followers_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_ANSWERS_ANSWER_RECEIVER_H_
