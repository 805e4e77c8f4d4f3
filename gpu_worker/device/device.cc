#include "gpu_worker/device/device.h"

#include <utility>

#include "common/base/status_macros.h"

namespace djinn::worker {

bool IsPlainContiguous(const srg::TensorView& view) {
  if (view.conjugate || view.negative) return false;
  for (const int64_t size : view.sizes) {
    if (size == 0) return true;
  }
  int64_t expected = 1;
  for (size_t i = view.sizes.size(); i-- > 0;) {
    if (view.sizes[i] == 1) continue;
    if (view.strides[i] != expected) return false;
    expected *= view.sizes[i];
  }
  return true;
}

absl::StatusOr<SharedBytes> Device::HostRange(std::shared_ptr<Buffer> buffer,
                                              uint64_t offset, uint64_t bytes) {
  DJINN_ASSIGN_OR_RETURN(SharedBytes all, HostBytes(std::move(buffer)));
  return SharedBytes{all.bytes.substr(offset, bytes), std::move(all.owner)};
}

}  // namespace djinn::worker
