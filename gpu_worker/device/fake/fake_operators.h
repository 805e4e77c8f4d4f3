// Implements the fake device's buffers and operators; fake_device.h describes
// the operators.
#ifndef GPU_WORKER_DEVICE_FAKE_FAKE_OPERATORS_H_
#define GPU_WORKER_DEVICE_FAKE_FAKE_OPERATORS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "gpu_worker/device/fake/fake_device.h"

namespace djinn::worker {

class FakeBuffer : public Buffer {
 public:
  explicit FakeBuffer(uint64_t bytes) : bytes_(bytes) {}
  uint64_t size_bytes() const override { return bytes_.size(); }
  char* data() { return bytes_.data(); }
  const char* data() const { return bytes_.data(); }

 private:
  std::vector<char> bytes_;
};

// Makes the library. `device` outlives it.
std::unique_ptr<OperatorLibrary> MakeFakeOperators(FakeDevice* device);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_FAKE_FAKE_OPERATORS_H_
