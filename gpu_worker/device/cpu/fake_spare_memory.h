// Provides spare memory with a limit, for tests.
#ifndef GPU_WORKER_DEVICE_CPU_FAKE_SPARE_MEMORY_H_
#define GPU_WORKER_DEVICE_CPU_FAKE_SPARE_MEMORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpu_worker/device/device.h"

namespace djinn::worker {

class FakeSpareMemory final : public SpareMemory {
 public:
  std::shared_ptr<void> Reserve(const std::string& tenant,
                                uint64_t bytes) override {
    tenants.push_back(tenant);
    if (*used_ + bytes > limit) return nullptr;
    *used_ += bytes;
    return std::shared_ptr<void>(
        used_.get(), [used = used_, bytes](void*) { *used -= bytes; });
  }
  uint64_t used() const { return *used_; }

  uint64_t limit = uint64_t{1} << 30;
  std::vector<std::string> tenants;

 private:
  const std::shared_ptr<uint64_t> used_ = std::make_shared<uint64_t>(0);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_FAKE_SPARE_MEMORY_H_
