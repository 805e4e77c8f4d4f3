#include "gpu_worker/device/cpu/packed_kernel.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace djinn::worker {
namespace {

// Where the system does not say.
constexpr int64_t kUsualCacheBytes = int64_t{1} << 20;

int64_t SecondCacheBytes() {
  const int64_t bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return bytes > 0 ? bytes : kUsualCacheBytes;
}

}  // namespace

int64_t RowsAtOnce(const PackedKernel& kernel, int64_t depth) {
  // Half of it: the weight passes through the other.
  static const int64_t elements =
      SecondCacheBytes() / 2 / static_cast<int64_t>(sizeof(float));
  const int64_t tiles = elements / depth / kernel.tile_rows;
  return std::max<int64_t>(tiles, 1) * kernel.tile_rows;
}

const PackedKernel* BestPackedKernel() {
  const PackedKernel* const widest = Avx512PackedKernel();
  return widest != nullptr ? widest : Avx2PackedKernel();
}

}  // namespace djinn::worker
