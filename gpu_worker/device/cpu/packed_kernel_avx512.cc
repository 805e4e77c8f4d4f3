// Compiled with -mavx512f -mfma where the target is x86-64.
#include "gpu_worker/device/cpu/packed_kernel.h"

#ifdef __AVX512F__
#include "gpu_worker/device/cpu/packed_kernel_tiles.h"
#endif

namespace djinn::worker {

#ifdef __AVX512F__

const PackedKernel* Avx512PackedKernel() {
  static constexpr PackedKernel kKernel = KernelOf<Vector16>("AVX-512");
  return __builtin_cpu_supports("avx512f") ? &kKernel : nullptr;
}

#else

const PackedKernel* Avx512PackedKernel() { return nullptr; }

#endif

}  // namespace djinn::worker
