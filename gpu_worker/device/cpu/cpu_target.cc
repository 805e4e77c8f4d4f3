#include "gpu_worker/device/cpu/cpu_target.h"

#include <cstring>

#include "ATen/CPUGeneratorImpl.h"
#include "common/srg/graph.h"

namespace djinn::worker {
namespace {

class Target final : public TorchTarget {
 public:
  Target() : TorchTarget(c10::Device(c10::kCPU)) {}

  c10::Storage Zeroed(uint64_t bytes) const override {
    return ZeroedStorage(bytes);
  }
  void FillWithZeros(const c10::Storage& storage) const override {
    std::memset(storage.unsafeGetStorageImpl()->mutable_data(), 0,
                storage.nbytes());
  }

  const at::Generator& ThreadGenerator() const override {
    thread_local const at::Generator own = at::detail::createCPUGenerator();
    return own;
  }
  at::Generator DefaultGenerator() const override {
    return at::detail::getDefaultCPUGenerator();
  }
  at::Tensor ReadState(const TorchBuffer& buffer) const override {
    srg::TensorView view;
    view.data_type = srg::DataType::kUint8;
    view.sizes = {static_cast<int64_t>(buffer.size_bytes())};
    view.strides = {1};
    return MakeTensor(view, buffer.storage());
  }
  void WriteState(const TorchBuffer& buffer,
                  const at::Tensor& state) const override {
    std::memcpy(buffer.data(), state.const_data_ptr(), state.nbytes());
  }
};

}  // namespace

const TorchTarget& CpuTarget() {
  static const Target* const target = new Target;
  return *target;
}

}  // namespace djinn::worker
