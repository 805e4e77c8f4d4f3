// Stores the ordered messages of one session at one worker. The log numbers
// them, keeps them until the worker executed them, and hands them out for
// sending as far as the worker's window allows. After a stream broke, the log
// may hand out sent messages a second time; these take no further room in the
// window.
//
// Not thread-safe: the connection's lock guards it.
#ifndef CLIENT_LIB_SESSION_STREAM_MESSAGE_LOG_H_
#define CLIENT_LIB_SESSION_STREAM_MESSAGE_LOG_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace djinn::v1 {
class ControlRequest;
class Window;
}  // namespace djinn::v1

namespace djinn {

class MessageLog {
 public:
  // The window before the worker announces its own.
  static constexpr uint64_t kFirstMessages = 64;
  static constexpr uint64_t kFirstBytes = 16 << 20;

  struct Entry {
    std::shared_ptr<const v1::ControlRequest> message;
    uint64_t sequence = 0;
    uint64_t bytes = 0;  // of the Ordered
    // Messages and bytes before this one that count towards the window.
    uint64_t messages_before = 0;
    uint64_t bytes_before = 0;
    bool ends_work = false;  // the last message of a piece of work
    // Storages that a run writes but, being a repeat, does not name.
    std::vector<uint64_t> written;
  };

  // Returns the number of the next message to be appended.
  uint64_t next_sequence() const { return appended_ + 1; }
  // Appends `message`, which has the next number. `bytes` is the size of its
  // Ordered.
  void Append(std::shared_ptr<const v1::ControlRequest> message, uint64_t bytes,
              bool ends_work, std::vector<uint64_t> written = {});

  // Returns the next message to send, or null when all were sent.
  const Entry* Next() const;
  // Returns whether the window has room for the message, or the message needs
  // none.
  bool HasRoom(const Entry& entry) const {
    return IsExempt(entry) || (entry.messages_before < window_messages_ &&
                               entry.bytes_before < window_bytes_);
  }
  // Return how many further messages, and bytes of them, fit.
  uint64_t room_messages() const {
    return window_messages_ - std::min(window_messages_, counted_messages_);
  }
  uint64_t room_bytes() const {
    return window_bytes_ - std::min(window_bytes_, counted_bytes_);
  }
  void MarkSent();
  // Schedules all messages after `received` for a new stream, including those
  // that were sent. Returns false, without effect, if `received` is not a
  // possible number.
  bool Rewind(uint64_t received);

  // Notes that the worker executed all messages up to `sequence`. Returns false
  // if `sequence` was never sent. A sequence that is already known has no
  // effect.
  bool Complete(uint64_t sequence);
  // Returns the oldest executed message, each one once.
  std::optional<Entry> TakeCompleted();

  // Replaces the provisional window by the worker's first one.
  void SetWindow(const v1::Window& window);
  // Return the number and the bytes of the messages that are still to be sent,
  // including messages that are sent a second time.
  uint64_t unsent() const { return appended_ + 1 - next_; }
  uint64_t unsent_bytes() const;

  // Raises the window to the worker's new limits; it never shrinks.
  void GrowWindow(const v1::Window& window);

  // Returns the messages sent but not executed, followed by those to be sent.
  const std::deque<Entry>& entries() const { return entries_; }
  bool empty() const { return entries_.empty(); }
  uint64_t completed() const { return completed_; }
  // Returns the number of the last message ever sent.
  uint64_t sent() const { return sent_; }
  uint64_t window_messages() const { return window_messages_; }
  uint64_t window_bytes() const { return window_bytes_; }
  // Return the number and the bytes of the unfinished messages that count
  // towards the window.
  uint64_t outstanding() const;
  uint64_t outstanding_bytes() const;

 private:
  // Frees do not count towards the window.
  static bool IsExempt(const Entry& entry);

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
