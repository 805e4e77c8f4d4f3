// Compiled for these instructions where the target is x86-64. Not by options of
// its target: with those, GCC takes no precompiled headers
// (third_party/precompiled).
#if defined(__x86_64__) && !defined(__clang__)
#pragma GCC target("avx512f,fma")
#define HAS_INSTRUCTIONS
#endif

#include "gpu_worker/device/cpu/packed_kernel.h"

#ifdef HAS_INSTRUCTIONS
#include "gpu_worker/device/cpu/packed_kernel_tiles.h"
#endif

namespace djinn::worker {

#ifdef HAS_INSTRUCTIONS

const PackedKernel* Avx512PackedKernel() {
  static constexpr PackedKernel kKernel = KernelOf<Vector16>("AVX-512");
  return __builtin_cpu_supports("avx512f") ? &kKernel : nullptr;
}

#else

const PackedKernel* Avx512PackedKernel() { return nullptr; }

#endif

}  // namespace djinn::worker
