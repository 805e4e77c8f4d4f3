// Compiled with -mavx2 -mfma where the target is x86-64.
#include "gpu_worker/device/cpu/packed_kernel.h"

#if defined(__AVX2__) && defined(__FMA__)
#include "gpu_worker/device/cpu/packed_kernel_tiles.h"
#endif

namespace djinn::worker {

#if defined(__AVX2__) && defined(__FMA__)

const PackedKernel* Avx2PackedKernel() {
  static constexpr PackedKernel kKernel = KernelOf<Vector8>("AVX2");
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
             ? &kKernel
             : nullptr;
}

#else

const PackedKernel* Avx2PackedKernel() { return nullptr; }

#endif

}  // namespace djinn::worker
