// Sends a session's replies and news to its client, in order, over the stream
// that it has at the moment, if any.
//
// Replies are numbered and kept, with the values that follow them on Bulk,
// until the client acknowledges them. A stream that is attached sends the kept
// replies once more. News is everything else; it concerns the moment and is
// lost with its stream.
//
// No caller waits here: what the stream has no room for stays, and is sent when
// the stream reports room. The thread that adds something or hears of room
// sends, one thread at a time. The session checks how long a full outbox has
// stood still.
//
// Thread-safe.
#ifndef GPU_WORKER_SESSION_STATE_OUTBOX_H_
#define GPU_WORKER_SESSION_STATE_OUTBOX_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/transport/stream.h"
#include "gpu_worker/leases/traffic.h"

namespace djinn::v1 {
class ControlResponse;
}  // namespace djinn::v1

namespace djinn::worker {

class Outbox {
 public:
  // Calls `on_room`, without locks, whenever a full outbox has room again.
  // `traffic` and `clock` must outlive the outbox.
  Outbox(uint64_t limit_bytes, Traffic* traffic, Clock* clock,
         std::function<void()> on_room)
      : limit_bytes_(limit_bytes),
        traffic_(traffic),
        clock_(clock),
        on_room_(std::move(on_room)) {}

  // Sends to `stream` from now on: first `news`, then the kept replies. Streams
  // are numbered in the order in which the client opened them; a late call for
  // an older one is without effect. The outbox does not use the previous stream
  // any more.
  void Attach(WorkerStream* stream, uint64_t number,
              std::vector<v1::ControlResponse> news);
  // Returns when the outbox does not use `stream` any more. Without effect for
  // another stream.
  void Detach(const WorkerStream* stream);

  // Adds a reply, which is numbered, and kept until it is acknowledged.
  void Push(v1::ControlResponse reply);
  // Adds a reply with a value of any size that follows on Bulk. The owner of
  // the bytes holds the reservation that accounts for them.
  void Push(v1::ControlResponse reply, uint64_t transfer_id, SharedBytes value);
  // Adds news, which is lost when there is no stream.
  void PushNews(v1::ControlResponse news);

  // Forgets the kept replies and everything that waits.
  void Forget();

  // Forgets replies up to `number`. Returns false when there are not so many.
  bool Acknowledge(uint64_t number);
  // Returns the number of the last reply.
  uint64_t last_number() const;

  // Returns whether the kept and waiting bytes have reached the limit. Then the
  // session should not execute messages that lead to replies.
  bool Full() const;
  // Describes an outbox that is full and has a stream that could empty it.
  struct Standstill {
    // The time since which nothing was sent or acknowledged.
    absl::Duration since;
    uint64_t bytes = 0;
  };
  std::optional<Standstill> standstill() const;

  // The stream calls these when it has room again.
  void OnRoom();
  void OnBulkRoom();

 private:
  using Message = std::shared_ptr<const v1::ControlResponse>;
  struct Kept {
    Message message;
    uint64_t transfer_id;
    SharedBytes value;
    uint64_t bytes;
  };
  struct Value {
    uint64_t transfer_id;
    SharedBytes rest;
    uint64_t offset;
  };

  // Sends until the stream has no room or nothing waits.
  void Send();
  bool SendOne();
  void AddWaiting(Message message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Message TakeWaiting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropWaiting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends the use of the current stream.
  void LeaveStream() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool FullLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return bytes_ >= limit_bytes_;
  }

  const uint64_t limit_bytes_;
  Traffic* const traffic_;
  Clock* const clock_;
  const std::function<void()> on_room_;
  mutable Mutex mu_;
  WorkerStream* stream_ ABSL_GUARDED_BY(mu_) = nullptr;
  uint64_t stream_number_ ABSL_GUARDED_BY(mu_) = 0;
  // Replies that are not acknowledged, in the order of their numbers. The last
  // one's is last_number_.
  std::deque<Kept> kept_ ABSL_GUARDED_BY(mu_);
  uint64_t last_number_ ABSL_GUARDED_BY(mu_) = 0;
  // Messages and values not yet given to the stream.
  std::deque<Message> waiting_ ABSL_GUARDED_BY(mu_);
  std::deque<Value> values_ ABSL_GUARDED_BY(mu_);
  // The bytes of kept replies, and of news that wait.
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  // When something was last added, sent or acknowledged.
  absl::Duration moved_ ABSL_GUARDED_BY(mu_);
  // True when the stream said that it is full.
  bool stalled_ ABSL_GUARDED_BY(mu_) = false;
  bool bulk_stalled_ ABSL_GUARDED_BY(mu_) = false;
  // True while a thread is in Send(). `inside_` is the stream that it is
  // calling.
  bool sending_ ABSL_GUARDED_BY(mu_) = false;
  const WorkerStream* inside_ ABSL_GUARDED_BY(mu_) = nullptr;
  CondVar idle_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_OUTBOX_H_
