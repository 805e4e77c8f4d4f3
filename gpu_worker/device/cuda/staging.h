// Copies bytes between the host and a device through a few reused blocks of
// pinned memory.
//
// A block with bytes for the device is reused once the copy from it is done; an
// event says when. So an upload returns when its bytes are in blocks, and waits
// only while all blocks are in use by copies.
//
// Thread-safe.
#ifndef GPU_WORKER_DEVICE_CUDA_STAGING_H_
#define GPU_WORKER_DEVICE_CUDA_STAGING_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "gpu_worker/device/cuda/accelerator.h"

namespace djinn::worker {

class Staging {
 public:
  struct Options {
    uint64_t block_bytes = uint64_t{4} << 20;
    // The number of blocks, which are allocated when they are first needed.
    size_t blocks = 16;
  };

  // `accelerator` outlives this.
  Staging(Accelerator* accelerator, Options options)
      : accelerator_(*accelerator), options_(options) {}

  // Enqueues a copy of the bytes on the stream. The caller may change the bytes
  // once it returns.
  absl::Status Upload(void* to, absl::string_view bytes, StreamId stream);

  // Returns when the bytes are at `to`. The copy-out stream reads them after
  // the commands enqueued on it before, and after the events it was made to
  // wait for.
  absl::Status Download(char* to, const void* from, uint64_t bytes);

 private:
  using Block = std::shared_ptr<char>;
  struct InFlight {
    Block block;
    EventPtr done;
    StreamId stream;
  };

  // Returns a free block, and waits for one if the caller holds none. Returns
  // null if none is free and the caller already holds one: callers that hold
  // blocks must not wait for each other's.
  absl::StatusOr<Block> Take(bool holds_one) ABSL_LOCKS_EXCLUDED(mu_);
  // Frees a block that no copy uses.
  void PutBack(Block block) ABSL_LOCKS_EXCLUDED(mu_);
  // Frees a block once `done`, an event of the stream, has completed.
  void PutBackBehind(Block block, EventPtr done, StreamId stream)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Removes a block whose event has completed, if there is one. Otherwise
  // removes the block that is likely to be free first: the oldest that does not
  // wait for operators.
  InFlight TakeInFlight() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Accelerator& accelerator_;
  const Options options_;
  Mutex mu_;
  CondVar returned_;
  size_t made_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<Block> free_ ABSL_GUARDED_BY(mu_);
  // The oldest first.
  std::deque<InFlight> in_flight_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_STAGING_H_
