// Compiled for these instructions where the target is x86-64. Not by options of
// its target: with those, GCC takes no precompiled headers
// (third_party/precompiled).
#if defined(__x86_64__) && !defined(__clang__)
#pragma GCC target("avx2,fma")
#define HAS_INSTRUCTIONS
#endif

#include "gpu_worker/device/cpu/packed_kernel.h"

#ifdef HAS_INSTRUCTIONS
#include "gpu_worker/device/cpu/packed_kernel_tiles.h"
#endif

namespace djinn::worker {

#ifdef HAS_INSTRUCTIONS

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
