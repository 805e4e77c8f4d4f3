// Tracks which of the worker's numbered replies arrived, and up to which reply
// all are handled, including their bulk bytes. Only handled replies may be
// acknowledged.
//
// Not thread-safe: the connection's lock guards it.
#ifndef CLIENT_LIB_SESSION_STREAM_REPLY_LOG_H_
#define CLIENT_LIB_SESSION_STREAM_REPLY_LOG_H_

#include <cstdint>
#include <set>

namespace djinn {

class ReplyLog {
 public:
  // Unacknowledged replies, or bytes of them, that justify a message.
  static constexpr uint64_t kManyReplies = 64;
  static constexpr uint64_t kManyBytes = 64 << 10;

  enum class Arrival { kNew, kKnown, kGap };
  // Takes a reply that arrived. Number 0 means unnumbered; an unnumbered reply
  // is always new.
  Arrival Take(uint64_t number, uint64_t bytes) {
    if (number == 0) return Arrival::kNew;
    if (number <= last_) return Arrival::kKnown;
    if (number != last_ + 1) return Arrival::kGap;
    last_ = number;
    bytes_ += bytes;
    return Arrival::kNew;
  }

  // Marks the reply as not handled until Release(), because its bulk bytes are
  // still on the way.
  void Hold(uint64_t number) { held_.insert(number); }
  void Release(uint64_t number, uint64_t bytes) {
    bytes_ += bytes;
    held_.erase(number);
  }

  // Returns the number up to which every reply is handled.
  uint64_t handled() const {
    return held_.empty() ? last_ : *held_.begin() - 1;
  }
  // Returns whether an acknowledgement should not wait for the next message.
  bool Due() const {
    const uint64_t replies = handled() - acknowledged_;
    return replies >= kManyReplies || (replies > 0 && bytes_ > kManyBytes);
  }
  // Notes that the client acknowledged the replies up to `number`.
  void Acknowledged(uint64_t number) {
    if (number <= acknowledged_) return;
    acknowledged_ = number;
    if (number == handled()) bytes_ = 0;
  }

 private:
  uint64_t last_ = 0;
  uint64_t acknowledged_ = 0;
  uint64_t bytes_ = 0;  // of replies not acknowledged, roughly
  std::set<uint64_t> held_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_STREAM_REPLY_LOG_H_
