// What a session has to tell its client, in order, over whichever stream it has
// at the moment, or none.
//
// Replies that say something are numbered and kept, with the values that follow
// them on Bulk, until the client acknowledges them; a stream that is attached
// gets what is kept once more. Everything else is news of the moment and lost
// with its stream.
//
// Nobody waits here: what the stream has no room for stays, and is sent when
// the stream reports room. Whoever adds something or hears of room sends, one
// at a time. How long a full one has stood still is for others to look at.
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
#include "djinn/v1/execution.pb.h"
#include "gpu_worker/leases/traffic.h"

namespace djinn::worker {

class Outbox {
 public:
  // `on_room` is called, without locks, whenever a full outbox has room again.
  // `traffic` and `clock` outlive the outbox.
  Outbox(uint64_t limit_bytes, Traffic* traffic, Clock* clock,
         std::function<void()> on_room)
      : limit_bytes_(limit_bytes),
        traffic_(traffic),
        clock_(clock),
        on_room_(std::move(on_room)) {}

  // Sends to `stream` from now on: first `news`, then what is kept. Streams are
  // numbered in the order in which the client opened them: a late call for an
  // older one is without effect. The former stream is not used any more.
  void Attach(WorkerStream* stream, uint64_t number,
              std::vector<v1::ControlResponse> news);
  // Returns when `stream` is not used any more. Without effect for another one.
  void Detach(const WorkerStream* stream);

  // A reply: numbered, and kept until it is acknowledged.
  void Push(v1::ControlResponse reply);
  // The same, with a value of any size that follows on Bulk. The owner of the
  // bytes holds what accounts for them.
  void Push(v1::ControlResponse reply, uint64_t transfer_id, SharedBytes value);
  // Lost when there is no stream.
  void PushNews(v1::ControlResponse news);

  // Forgets what is kept and what waits.
  void Forget();

  // Forgets replies up to `number`. False when there are not so many.
  bool Acknowledge(uint64_t number);
  // Of the last reply.
  uint64_t last_number() const;

  // Whether what is kept or waits has reached the limit: nothing more that
  // leads to replies should be executed.
  bool Full() const;
  // Full, with a stream that could empty it.
  struct Standstill {
    // Since when nothing was sent, or acknowledged.
    absl::Duration since;
    uint64_t bytes = 0;
  };
  std::optional<Standstill> standstill() const;

  // The stream has room again.
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
  // Not acknowledged, in the order of their numbers, the last of which is
  // last_number_.
  std::deque<Kept> kept_ ABSL_GUARDED_BY(mu_);
  uint64_t last_number_ ABSL_GUARDED_BY(mu_) = 0;
  // Not yet given to the stream.
  std::deque<Message> waiting_ ABSL_GUARDED_BY(mu_);
  std::deque<Value> values_ ABSL_GUARDED_BY(mu_);
  // Of kept replies, and of news that wait.
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  // When something was last added, sent or acknowledged.
  absl::Duration moved_ ABSL_GUARDED_BY(mu_);
  // The stream said that it is full.
  bool stalled_ ABSL_GUARDED_BY(mu_) = false;
  bool bulk_stalled_ ABSL_GUARDED_BY(mu_) = false;
  // Somebody is in Send(), and perhaps inside this stream.
  bool sending_ ABSL_GUARDED_BY(mu_) = false;
  const WorkerStream* inside_ ABSL_GUARDED_BY(mu_) = nullptr;
  CondVar idle_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_OUTBOX_H_
