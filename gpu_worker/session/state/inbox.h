// Holds a session's ordered messages that arrived and are not executed. Drops
// messages that a resumed stream repeats, and keeps the client to the window
// that it was granted.
//
// Free is exempt from the window. The session's max_outstanding_bytes bounds
// the Frees that wait, by the memory that they take here.
//
// Not thread-safe.
#ifndef GPU_WORKER_SESSION_STATE_INBOX_H_
#define GPU_WORKER_SESSION_STATE_INBOX_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "djinn/v1/execution.pb.h"
#include "djinn/v1/types.pb.h"
#include "gpu_worker/session/observe/session_profile.h"

namespace djinn::worker {

// How far a window reaches beyond the completed messages.
struct WindowWidth {
  uint64_t messages = 0;
  uint64_t bytes = 0;
};

class Inbox {
 public:
  struct Item {
    v1::Ordered message;
    // The bytes received. The window counts them, except for Free.
    uint64_t bytes = 0;
    // When the message must have begun, by the worker's monotonic clock.
    absl::Duration deadline = absl::InfiniteDuration();
    // When a Run arrived, by the same clock.
    absl::Duration arrived;
    // Set for a Read, while the session is profiled.
    std::optional<SessionProfile::Mark> mark;
  };

  explicit Inbox(const v1::SessionLimits& limits) : limits_(limits) {}

  // Adds a message; drops one that was received before. Returns InvalidArgument
  // (PROTOCOL_VIOLATION) for a gap in the sequence, ResourceExhausted
  // (WINDOW_EXCEEDED) beyond the window or for a message above
  // max_outstanding_bytes.
  absl::Status Add(v1::Ordered message,
                   absl::Duration deadline = absl::InfiniteDuration(),
                   std::optional<SessionProfile::Mark> mark = std::nullopt,
                   absl::Duration arrived = absl::ZeroDuration());

  bool empty() const { return items_.empty(); }
  // Returns the deadline of the next message that is not a Free; infinite when
  // there is none.
  absl::Duration deadline() const {
    const Item* const next = NextButFree();
    return next == nullptr ? absl::InfiniteDuration() : next->deadline;
  }
  // Returns the run of that message; null when it is not a run.
  const v1::Run* next_run() const {
    const Item* const next = NextButFree();
    return next == nullptr || !next->message.has_run() ? nullptr
                                                       : &next->message.run();
  }
  // Returns whether that message is a run in fast mode that may be executed in
  // a batch. One with switches of its own may not, because a batch's products
  // are computed under one setting.
  bool fast_run_next() const {
    const Item* const next = NextButFree();
    return next != nullptr &&
           next->message.run().mode() == v1::EXECUTION_MODE_FAST &&
           !next->message.run().has_switches();
  }
  // Returns whether the next message is a Free. See read_next() for a Read.
  bool free_next() const {
    return !items_.empty() && items_.front().message.has_free();
  }
  // Returns how many storages the next message frees.
  size_t freed_next() const {
    return items_.empty() ? 0
                          : static_cast<size_t>(
                                items_.front().message.free().storages_size());
  }
  // Returns the sequence of the next message. The inbox must not be empty.
  uint64_t next_sequence() const { return items_.front().message.sequence(); }
  bool read_next() const {
    return !items_.empty() && items_.front().message.has_read();
  }
  // Takes out the next message. The inbox must not be empty.
  Item Take();
  // Makes the message that was taken last wait again.
  void PutBack(Item item);
  // Visits the messages that are runs, in their order.
  template <typename Visit>
  void ForEachRun(Visit visit) const {
    for (const Item& item : items_) {
      if (item.message.has_run()) visit(item);
    }
  }
  // The messages that waited when Clear() forgot them.
  struct Forgotten {
    uint32_t runs = 0;
    uint64_t bytes = 0;
  };
  Forgotten Clear();

  // Notes that messages up to `sequence` are completed. `bytes` are those of
  // the last one; the window counts them if it `counts`.
  void Complete(uint64_t sequence, uint64_t bytes, bool counts);

  // Widens the window to `width` beyond the completed messages. Never narrows
  // it.
  void Grant(WindowWidth width);
  const v1::Window& window() const { return window_; }

  // These return the last sequence received, and completed.
  uint64_t received() const { return received_; }
  uint64_t completed() const { return completed_; }
  // These return the messages that were received and not completed, and their
  // bytes as the window counts them.
  uint64_t outstanding() const { return received_ - completed_; }
  uint64_t outstanding_bytes() const {
    return received_bytes_ - completed_bytes_;
  }

 private:
  // Looks past one item at most, because Frees in a row are one item.
  const Item* NextButFree() const {
    const size_t at = free_next() ? 1 : 0;
    return items_.size() > at ? &items_[at] : nullptr;
  }

  const v1::SessionLimits limits_;
  std::deque<Item> items_;
  uint64_t received_ = 0;
  uint64_t completed_ = 0;
  // Counts of all messages except Free, since sequence 1.
  uint64_t received_messages_ = 0;
  uint64_t received_bytes_ = 0;
  uint64_t completed_messages_ = 0;
  uint64_t completed_bytes_ = 0;
  // The number of ids in Frees that wait.
  uint64_t freed_ids_ = 0;
  v1::Window window_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_INBOX_H_
