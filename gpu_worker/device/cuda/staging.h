// Bytes between the host and a device, by way of a few blocks of pinned memory
// that are used again and again.
//
// A block with bytes for the device is used again when the copy from it is
// done, and not before: it waits behind an event. So an upload returns when its
// bytes are in blocks; it waits only when all of them are on their way.
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
    // Made when they are needed.
    size_t blocks = 16;
  };

  // `accelerator` outlives this.
  Staging(Accelerator* accelerator, Options options)
      : accelerator_(*accelerator), options_(options) {}

  // Asks the stream to copy the bytes, which may change from then on.
  absl::Status Upload(void* to, absl::string_view bytes, StreamId stream);

  // Returns when the bytes are at `to`. They are read behind what the copy-out
  // stream was asked, and waits for, before.
  absl::Status Download(char* to, const void* from, uint64_t bytes);

 private:
  using Block = std::shared_ptr<char>;
  struct InFlight {
    Block block;
    EventPtr done;
    StreamId stream;
  };

  // Null if all are held and the caller, who holds one itself, must not wait
  // for others who hold theirs.
  absl::StatusOr<Block> Take(bool holds_one) ABSL_LOCKS_EXCLUDED(mu_);
  // When it is done with.
  void PutBack(Block block) ABSL_LOCKS_EXCLUDED(mu_);
  // When `done`, of the stream, has come.
  void PutBackBehind(Block block, EventPtr done, StreamId stream)
      ABSL_LOCKS_EXCLUDED(mu_);
  // One whose event has come, if there is one; else that which is likely to be
  // the first: the oldest that does not wait for operators.
  InFlight TakeInFlight() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Accelerator& accelerator_;
  const Options options_;
  Mutex mu_;
  CondVar returned_;
  size_t made_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<Block> free_ ABSL_GUARDED_BY(mu_);
  // Oldest first.
  std::deque<InFlight> in_flight_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_STAGING_H_
