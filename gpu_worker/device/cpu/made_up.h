// Operands made up for trials of how a call may be carried out where every bit
// counts. A program's own do not do: with zeros or whole numbers any order of a
// sum gives the same, and what one program's seemed to show would hold for
// another's.
#ifndef GPU_WORKER_DEVICE_CPU_MADE_UP_H_
#define GPU_WORKER_DEVICE_CPU_MADE_UP_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/srg/structure.h"
#include "gpu_worker/device/operator_library.h"

namespace djinn::worker {

enum class MadeUpRange {
  kSigned,    // between -1 and 1
  kPositive,  // between 0 and 1, which suits roots, logarithms and variances
};

// Whether a buffer of such elements can be made up.
bool CanMakeUp(srg::DataType type);

// Numbers with all their bits, the same for the same seed. Bytes that are no
// whole element are zero. Throws when there is no memory.
std::shared_ptr<Buffer> MakeUp(srg::DataType type, size_t bytes, uint64_t seed,
                               MadeUpRange range);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_MADE_UP_H_
