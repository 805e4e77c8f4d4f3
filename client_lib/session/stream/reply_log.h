// Which of the worker's numbered replies are here, and up to where they are
// handled, bulk bytes included: what may be acknowledged.
//
// Not thread-safe: the device's lock guards it.
#ifndef CLIENT_LIB_SESSION_STREAM_REPLY_LOG_H_
#define CLIENT_LIB_SESSION_STREAM_REPLY_LOG_H_

#include <cstdint>
#include <set>

namespace djinn {

class ReplyLog {
 public:
  // Unacknowledged replies, or bytes of them, that are worth a message.
  static constexpr uint64_t kManyReplies = 64;
  static constexpr uint64_t kManyBytes = 64 << 10;

  enum class Arrival { kNew, kKnown, kGap };
  // 0 is not a number: new each time.
  Arrival Take(uint64_t number, uint64_t bytes) {
    if (number == 0) return Arrival::kNew;
    if (number <= last_) return Arrival::kKnown;
    if (number != last_ + 1) return Arrival::kGap;
    last_ = number;
    bytes_ += bytes;
    return Arrival::kNew;
  }

  // The reply is not handled before it is released: its bytes are under way.
  void Hold(uint64_t number) { held_.insert(number); }
  void Release(uint64_t number, uint64_t bytes) {
    bytes_ += bytes;
    held_.erase(number);
  }

  // Every reply up to here is handled.
  uint64_t handled() const {
    return held_.empty() ? last_ : *held_.begin() - 1;
  }
  // Whether an acknowledgement should not wait for the next message.
  bool Due() const {
    const uint64_t replies = handled() - acknowledged_;
    return replies >= kManyReplies || (replies > 0 && bytes_ > kManyBytes);
  }
  // `number` was said to the worker.
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
