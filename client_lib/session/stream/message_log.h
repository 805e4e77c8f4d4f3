// The ordered messages of one session at one worker: numbered, kept until the
// worker has carried them out, and handed out for sending as far as the window
// it granted allows. What was sent may be handed out again, after a stream
// broke; it takes no room in the window twice.
//
// Not thread-safe: the device's lock guards it.
#ifndef CLIENT_LIB_SESSION_STREAM_MESSAGE_LOG_H_
#define CLIENT_LIB_SESSION_STREAM_MESSAGE_LOG_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "djinn/v1/execution.pb.h"

namespace djinn {

class MessageLog {
 public:
  // Before the worker says its own.
  static constexpr uint64_t kFirstMessages = 64;
  static constexpr uint64_t kFirstBytes = 16 << 20;

  struct Entry {
    std::shared_ptr<const v1::ControlRequest> message;
    uint64_t sequence = 0;
    uint64_t bytes = 0;  // of the Ordered
    // What came before it and counts for the window.
    uint64_t messages_before = 0;
    uint64_t bytes_before = 0;
    bool ends_work = false;  // the last message of a piece of work
    // Storages that a run writes and does not name, being a repeat.
    std::vector<uint64_t> written;
  };

  // The number of the next message to be appended.
  uint64_t next_sequence() const { return appended_ + 1; }
  // `message` has that number; `bytes` is the size of its Ordered.
  void Append(std::shared_ptr<const v1::ControlRequest> message, uint64_t bytes,
              bool ends_work, std::vector<uint64_t> written = {});

  // The next message to send; null when all were sent.
  const Entry* Next() const;
  // Whether the window has room for it, or for another message after all.
  bool HasRoom(const Entry& entry) const {
    return IsExempt(entry) || (entry.messages_before < window_messages_ &&
                               entry.bytes_before < window_bytes_);
  }
  // Messages, and their bytes, that may follow.
  uint64_t room_messages() const {
    return window_messages_ - std::min(window_messages_, counted_messages_);
  }
  uint64_t room_bytes() const {
    return window_bytes_ - std::min(window_bytes_, counted_bytes_);
  }
  void MarkSent();
  // Everything after `received` is to be sent again, from the start of a new
  // stream. False, and nothing happens, when `received` cannot be.
  bool Rewind(uint64_t received);

  // Everything up to `sequence` was executed; false when it was never sent.
  // A sequence known already is no news.
  bool Complete(uint64_t sequence);
  // The oldest message that was executed, once each.
  std::optional<Entry> TakeCompleted();

  // The worker's first window takes the provisional one's place.
  void SetWindow(const v1::Window& window);
  // Not sent, or to be sent again; and the size of their Ordered.
  uint64_t unsent() const { return appended_ + 1 - next_; }
  uint64_t unsent_bytes() const;

  // Never shrinks.
  void GrowWindow(const v1::Window& window);

  // What was sent and is not executed, then what is still to be sent.
  const std::deque<Entry>& entries() const { return entries_; }
  bool empty() const { return entries_.empty(); }
  uint64_t completed() const { return completed_; }
  // The last message ever sent.
  uint64_t sent() const { return sent_; }
  uint64_t window_messages() const { return window_messages_; }
  uint64_t window_bytes() const { return window_bytes_; }
  // Messages, and their bytes, that count for the window and are unfinished.
  uint64_t outstanding() const;
  uint64_t outstanding_bytes() const;

 private:
  static bool IsExempt(const Entry& entry) {
    return entry.message->ordered().has_free();
  }

  std::deque<Entry> entries_;
  uint64_t appended_ = 0;
  uint64_t completed_ = 0;
  uint64_t sent_ = 0;
  uint64_t next_ = 1;  // to be sent
  uint64_t counted_messages_ = 0;
  uint64_t counted_bytes_ = 0;
  uint64_t window_messages_ = kFirstMessages;
  uint64_t window_bytes_ = kFirstBytes;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_STREAM_MESSAGE_LOG_H_
