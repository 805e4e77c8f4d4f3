// What a session wants to tell its client, in order. A thread of its own sends,
// so that a client that does not read blocks nobody else: the session stops
// being runnable while its outbox is full.
//
// Thread-safe.
#ifndef GPU_WORKER_SESSION_OUTBOX_H_
#define GPU_WORKER_SESSION_OUTBOX_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <variant>

#include "common/mutex.h"
#include "common/transport/stream.h"
#include "djinn/v1/execution.pb.h"

namespace djinn::worker {

class Outbox {
 public:
  // `stream` is used until Stop() returned. `on_room` is called in the sending
  // thread whenever a full outbox has room again.
  Outbox(WorkerStream* stream, uint64_t limit_bytes,
         std::function<void()> on_room);
  ~Outbox() { Stop(); }

  // Never block; what comes after Stop() is dropped. A single value may exceed
  // the limit: its chunks share one memory.
  void Push(v1::ControlResponse message);
  void PushBulk(uint64_t transfer_id, SharedBytes value);

  bool Full() const;

  // Ends the thread and waits for it. The stream is closed, or Send() returns
  // soon; what is queued may not be sent any more.
  void Stop();

 private:
  struct Chunk {
    uint64_t transfer_id;
    uint64_t offset;
    SharedBytes payload;
  };
  struct Item {
    std::variant<v1::ControlResponse, Chunk> content;
    uint64_t bytes;
  };

  void Send();

  WorkerStream* const stream_;
  const uint64_t limit_bytes_;
  const std::function<void()> on_room_;
  mutable Mutex mu_;
  CondVar changed_;
  std::deque<Item> items_ ABSL_GUARDED_BY(mu_);
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_OUTBOX_H_
