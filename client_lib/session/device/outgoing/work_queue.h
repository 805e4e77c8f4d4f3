// Queues work between the issuing threads and the sender, in the order of the
// program, and bounds it. It also says whether the worker's window has room for
// more, and returns segments that the sender cleared.
//
// Thread-safe. No other lock is taken under its lock.
#ifndef CLIENT_LIB_SESSION_DEVICE_OUTGOING_WORK_QUEUE_H_
#define CLIENT_LIB_SESSION_DEVICE_OUTGOING_WORK_QUEUE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "client_lib/session/stream/message_log.h"
#include "client_lib/session/transfer/work.h"
#include "common/base/mutex.h"

namespace djinn {

class WorkQueue {
 public:
  struct Size {
    size_t works = 0;
    uint64_t bytes = 0;
  };

  // --- For issuing threads ---

  // Queues the work. `needs_lease` says that the work justifies a lease if the
  // device has none yet.
  void Push(Work work, bool needs_lease);
  // Queues an offer ahead of all other work.
  void PushFirst(Work offer);
  // Returns whether the window has no room for another piece of work.
  bool full() const { return full_.load(std::memory_order_relaxed); }
  // Returns segments that the sender has cleared, each once.
  std::vector<Segment*> TakeCleared();
  Size size() const;
  // Returns the number of pieces of work pushed so far.
  uint64_t pushed() const;

  // --- For the sender ---

  bool empty() const { return size().works == 0; }
  // Returns the next work, which the sender holds from now on.
  std::optional<Work> Pop();
  // Returns whether the sender holds work.
  bool held() const;
  // Returns whether PushFirst() came while the sender held its present work.
  bool overtaken() const;
  void GiveBack(Segment* segment);
  // Returns whether the next work is a run or a read, which never waits for the
  // worker.
  bool next_is_simple() const;
  // Returns the number of pieces of work popped or dropped so far.
  uint64_t popped() const;
  // Returns whether some queued work justifies a lease.
  bool needs_lease() const {
    return needs_lease_.load(std::memory_order_acquire);
  }
  void NeedLease() { needs_lease_.store(true, std::memory_order_release); }
  // Calls `visit`, which must not call out, with each piece of queued work.
  void Visit(absl::FunctionRef<void(Work&)> visit);
  // Removes and returns all queued work.
  std::deque<Work> Drop();

  // Sets the window's room for queued and held work. `ends` says that the work
  // that the sender held is in the log.
  void SetRoom(const MessageLog& log, bool ends = false);

 private:
  void SetFull() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  std::atomic<bool> full_{false};
  std::atomic<bool> needs_lease_{false};
  mutable Mutex mu_;
  std::deque<Work> works_ ABSL_GUARDED_BY(mu_);
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t pushed_ ABSL_GUARDED_BY(mu_) = 0;
  bool held_ ABSL_GUARDED_BY(mu_) = false;
  bool overtaken_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t room_messages_ ABSL_GUARDED_BY(mu_) = MessageLog::kFirstMessages;
  uint64_t room_bytes_ ABSL_GUARDED_BY(mu_) = MessageLog::kFirstBytes;
  std::vector<Segment*> cleared_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_OUTGOING_WORK_QUEUE_H_
