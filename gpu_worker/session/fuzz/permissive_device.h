// A device that accepts every operator, for graphs of real programs without
// PyTorch. Operators of the fake device run there; all others return zeros of
// the inferred shape and fill what they write.
#ifndef GPU_WORKER_SESSION_FUZZ_PERMISSIVE_DEVICE_H_
#define GPU_WORKER_SESSION_FUZZ_PERMISSIVE_DEVICE_H_

#include <cstdint>
#include <memory>

#include "gpu_worker/device/fake/fake_device.h"
#include "gpu_worker/device/operator_library.h"

namespace djinn::worker {

class PermissiveDevice : public FakeDevice {
 public:
  explicit PermissiveDevice(uint64_t memory_bytes);
  ~PermissiveDevice() override;
  OperatorLibrary* operators() override { return library_.get(); }

 private:
  std::unique_ptr<OperatorLibrary> library_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_FUZZ_PERMISSIVE_DEVICE_H_
