// Moves bytes into and out of a device's buffers, in the right order with the
// operators that use them.
//
// A buffer made for an upload belongs to the copy-in stream until an operator
// uses it (upload_order.h). All others belong to the compute stream and are
// written in its order. A read comes after the last command that was enqueued
// on the stream to which the buffer belongs, and only the host waits for it.
//
// Thread-safe as far as buffers are.
#ifndef GPU_WORKER_DEVICE_CUDA_TRANSFERS_H_
#define GPU_WORKER_DEVICE_CUDA_TRANSFERS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "gpu_worker/device/cuda/accelerator.h"
#include "gpu_worker/device/cuda/staging.h"
#include "gpu_worker/device/cuda/upload_order.h"
#include "gpu_worker/device/torch/torch_buffer.h"

namespace djinn::worker {

class Transfers {
 public:
  // `accelerator` outlives this and all buffers.
  Transfers(Accelerator* accelerator, Staging::Options options)
      : accelerator_(*accelerator),
        staging_(accelerator, options),
        order_(accelerator) {}

  // Return uninitialized memory. May throw c10::Error.
  std::shared_ptr<TorchBuffer> MakeForUpload(uint64_t bytes);
  std::shared_ptr<TorchBuffer> MakeForOperators(uint64_t bytes);

  // Writes the bytes. Returns when the caller may change them. The buffer's
  // sole owner calls it.
  absl::Status Write(const TorchBuffer& buffer, uint64_t offset,
                     absl::string_view bytes);
  // Returns when the bytes are at `to`.
  absl::Status Read(const TorchBuffer& buffer, uint64_t offset, char* to,
                    uint64_t bytes);
  // Returns when the compute stream has executed all commands enqueued so far.
  absl::Status AwaitCompute();
  // Reads memory that operators wrote, and waits as AwaitCompute().
  absl::Status ReadMade(const void* from, char* to, uint64_t bytes);

  // Prepares the buffer for use by an operator. May throw c10::Error.
  void Use(const TorchBuffer& buffer) {
    order_.Join(buffer);
    if (buffer.derived() != nullptr) CatchUp(buffer);
  }

  // Keeps a copy of the buffer's bytes on the host until the buffer is written:
  // for a small value that the host reads often, such as a generator's state.
  static void KeepOnHost(const TorchBuffer& buffer, absl::string_view bytes);
  // Replaces all of the buffer's bytes on the host. The device gets them when
  // one of its commands is to read them.
  static void WriteOnHost(const TorchBuffer& buffer, absl::string_view bytes);
  // Returns the host's copy, or null if there is none.
  static std::shared_ptr<const std::string> OnHost(const TorchBuffer& buffer);

  const UploadOrder& order() const { return order_; }

 private:
  // Copies to the device the bytes that only the host has.
  void CatchUp(const TorchBuffer& buffer);

  Accelerator& accelerator_;
  Staging staging_;
  UploadOrder order_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_TRANSFERS_H_
