// Lets the idle executor thread receive from the stream of the only session at
// work. Over shared memory this saves a change of threads in each direction.
//
// The turn queue's lock guards everything here. Receive() releases it while it
// receives.
#ifndef GPU_WORKER_EXECUTOR_IDLE_RECEIVER_H_
#define GPU_WORKER_EXECUTOR_IDLE_RECEIVER_H_

#include <cstdint>
#include <memory>
#include <thread>

#include "absl/functional/function_ref.h"
#include "common/base/mutex.h"
#include "common/transport/stream.h"

namespace djinn::worker {

class IdleReceiver {
 public:
  // NoteTurn() notes whose turn begins; NotePreemption() that another session's
  // turn preempts it.
  void NoteTurn(uint64_t key) {
    turns_ = key == last_turn_ ? turns_ + 1 : 0;
    last_turn_ = key;
  }
  void NotePreemption() { turns_ = 0; }
  // Returns the session that had enough turns in succession to be assumed
  // alone, or 0.
  uint64_t alone() const;

  // Receives from the stream, in this thread, until `ready` or for some
  // milliseconds. Releases `mu` meanwhile; calls `ready` with the lock.
  void Receive(std::shared_ptr<WorkerStream> stream,
               absl::FunctionRef<bool()> ready, Mutex* mu)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Returns the stream from which a thread receives; null when none does.
  std::shared_ptr<WorkerStream> stream() const { return stream_; }
  // Returns whether this thread receives.
  bool in_this_thread() const {
    return stream_ != nullptr && std::this_thread::get_id() == thread_;
  }

 private:
  std::shared_ptr<WorkerStream> stream_;
  std::thread::id thread_;
  // The session that had the last turn, and how many turns it had in succession
  // before.
  uint64_t last_turn_ = 0;
  uint64_t turns_ = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_EXECUTOR_IDLE_RECEIVER_H_
