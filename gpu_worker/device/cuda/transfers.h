// How bytes get into and out of a device's buffers, in the right order with the
// operators that use them.
//
// A buffer made for an upload is the copy-in stream's until an operator uses it
// (upload_order.h); all others are the compute stream's, and are written in its
// order. What is read comes behind the last thing that was asked of the stream
// whose buffer it is, and is waited for by the host alone.
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

  // Memory with whatever was in it. May throw c10::Error.
  std::shared_ptr<TorchBuffer> MakeForUpload(uint64_t bytes);
  std::shared_ptr<TorchBuffer> MakeForOperators(uint64_t bytes);

  // Returns when the bytes may change. The buffer's sole owner says so.
  absl::Status Write(const TorchBuffer& buffer, uint64_t offset,
                     absl::string_view bytes);
  // Returns when the bytes are at `to`.
  absl::Status Read(const TorchBuffer& buffer, uint64_t offset, char* to,
                    uint64_t bytes);
  // Returns when all that the compute stream was asked is done.
  absl::Status AwaitCompute();
  // Reads what operators made, and waits as AwaitCompute().
  absl::Status ReadMade(const void* from, char* to, uint64_t bytes);

  // An operator is about to use it. May throw c10::Error.
  void Use(const TorchBuffer& buffer) {
    order_.Join(buffer);
    if (buffer.derived() != nullptr) CatchUp(buffer);
  }

  // A small value that the host looks at again and again, such as a
  // generator's state, is kept there, too, until the buffer is written.
  static void KeepOnHost(const TorchBuffer& buffer, absl::string_view bytes);
  // The same of new bytes for all of the buffer, which the device gets when
  // something there is to read them.
  static void WriteOnHost(const TorchBuffer& buffer, absl::string_view bytes);
  // Null where it is not.
  static std::shared_ptr<const std::string> OnHost(const TorchBuffer& buffer);

  const UploadOrder& order() const { return order_; }

 private:
  // Gives the device what only the host has.
  void CatchUp(const TorchBuffer& buffer);

  Accelerator& accelerator_;
  Staging staging_;
  UploadOrder order_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_TRANSFERS_H_
