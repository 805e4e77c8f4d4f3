// The ordered messages of a session that arrived and are not executed: drops
// what a resumed stream repeats, and keeps the client to the window that it was
// granted.
//
// Free is exempt from the window; what waits of it is bounded by the session's
// max_outstanding_bytes, at what it takes here.
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

// How far a window reaches beyond what is completed.
struct WindowWidth {
  uint64_t messages = 0;
  uint64_t bytes = 0;
};

class Inbox {
 public:
  struct Item {
    v1::Ordered message;
    // What came. The window counts it, but for Free.
    uint64_t bytes = 0;
    // When it must have begun, by the worker's monotonic clock.
    absl::Duration deadline = absl::InfiniteDuration();
    // By the same clock; of a Run.
    absl::Duration arrived;
    // Of a Read, while the session is profiled.
    std::optional<SessionProfile::Mark> mark;
  };

  explicit Inbox(const v1::SessionLimits& limits) : limits_(limits) {}

  // Takes a message; one that was received before is dropped. InvalidArgument
  // (PROTOCOL_VIOLATION) for a gap in the sequence, ResourceExhausted
  // (WINDOW_EXCEEDED) beyond the window or for a message above
  // max_outstanding_bytes.
  absl::Status Add(v1::Ordered message,
                   absl::Duration deadline = absl::InfiniteDuration(),
                   std::optional<SessionProfile::Mark> mark = std::nullopt,
                   absl::Duration arrived = absl::ZeroDuration());

  bool empty() const { return items_.empty(); }
  // Of the next one that is more than a Free; infinite when there is none.
  absl::Duration deadline() const {
    const Item* const next = NextButFree();
    return next == nullptr ? absl::InfiniteDuration() : next->deadline;
  }
  // Its run; null when it is something else.
  const v1::Run* next_run() const {
    const Item* const next = NextButFree();
    return next == nullptr || !next->message.has_run() ? nullptr
                                                       : &next->message.run();
  }
  // Whether that is a run in fast mode.
  bool fast_run_next() const {
    const Item* const next = NextButFree();
    return next != nullptr &&
           next->message.run().mode() == v1::EXECUTION_MODE_FAST;
  }
  // Whether the next one is a Free, or a Read.
  bool free_next() const {
    return !items_.empty() && items_.front().message.has_free();
  }
  // How many storages that one frees.
  size_t freed_next() const {
    return items_.empty() ? 0
                          : static_cast<size_t>(
                                items_.front().message.free().storages_size());
  }
  // The sequence of the next one. Not empty.
  uint64_t next_sequence() const { return items_.front().message.sequence(); }
  bool read_next() const {
    return !items_.empty() && items_.front().message.has_read();
  }
  // The next one. Not empty.
  Item Take();
  // What was taken last waits again.
  void PutBack(Item item);
  // Those that are runs, in their order.
  template <typename Visit>
  void ForEachRun(Visit visit) const {
    for (const Item& item : items_) {
      if (item.message.has_run()) visit(item);
    }
  }
  // What waited when it was forgotten.
  struct Forgotten {
    uint32_t runs = 0;
    uint64_t bytes = 0;
  };
  Forgotten Clear();

  // Messages are completed in order; `sequence` is the last one's. The window
  // counts its bytes if it `counts`.
  void Complete(uint64_t sequence, uint64_t bytes, bool counts);

  // Widens the window to `width` beyond what is completed; it never narrows.
  void Grant(WindowWidth width);
  const v1::Window& window() const { return window_; }

  // Last sequence received, and completed.
  uint64_t received() const { return received_; }
  uint64_t completed() const { return completed_; }
  // Received and not completed, and what the window counts of it.
  uint64_t outstanding() const { return received_ - completed_; }
  uint64_t outstanding_bytes() const {
    return received_bytes_ - completed_bytes_;
  }

 private:
  // Frees in a row are one item.
  const Item* NextButFree() const {
    const size_t at = free_next() ? 1 : 0;
    return items_.size() > at ? &items_[at] : nullptr;
  }

  const v1::SessionLimits limits_;
  std::deque<Item> items_;
  uint64_t received_ = 0;
  uint64_t completed_ = 0;
  // Of everything but Free, since sequence 1.
  uint64_t received_messages_ = 0;
  uint64_t received_bytes_ = 0;
  uint64_t completed_messages_ = 0;
  uint64_t completed_bytes_ = 0;
  // Ids in Frees that wait.
  uint64_t freed_ids_ = 0;
  v1::Window window_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_INBOX_H_
