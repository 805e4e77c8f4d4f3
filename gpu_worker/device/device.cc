#include "gpu_worker/device/device.h"

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

}  // namespace djinn::worker
