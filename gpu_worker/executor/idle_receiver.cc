#include "gpu_worker/executor/idle_receiver.h"

#include <utility>

#include "absl/time/time.h"

namespace djinn::worker {
namespace {

// A session that had this many turns in succession is assumed to be alone.
constexpr uint64_t kTurnsAlone = 8;
// How long the idle executor thread receives from a stream.
constexpr absl::Duration kPatience = absl::Milliseconds(50);

}  // namespace

uint64_t IdleReceiver::alone() const {
  return turns_ >= kTurnsAlone ? last_turn_ : 0;
}

void IdleReceiver::Receive(std::shared_ptr<WorkerStream> stream,
                           absl::FunctionRef<bool()> ready, Mutex* mu) {
  stream_ = stream;
  thread_ = std::this_thread::get_id();
  mu->Unlock();
  const bool received = stream->Lead(
      [&] {
        MutexLock lock(mu);
        return ready();
      },
      kPatience);
  mu->Lock();
  stream_.reset();
  const bool idle = !ready();
  mu->Unlock();
  if (received && idle) stream->Reclaim();
  stream.reset();  // the last to hold it destroys the stream
  mu->Lock();
}

}  // namespace djinn::worker
