#include "gpu_worker/device/cpu/packed_kernel.h"

namespace djinn::worker {

const PackedKernel* BestPackedKernel() {
  const PackedKernel* const widest = Avx512PackedKernel();
  return widest != nullptr ? widest : Avx2PackedKernel();
}

}  // namespace djinn::worker
