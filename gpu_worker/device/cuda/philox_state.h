// The state of a generator of CUDA's, as torch.cuda.get_rng_state() gives it: a
// seed and an offset, 64 bits each.
#ifndef GPU_WORKER_DEVICE_CUDA_PHILOX_STATE_H_
#define GPU_WORKER_DEVICE_CUDA_PHILOX_STATE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace djinn::worker {

inline constexpr uint64_t kPhiloxStateBytes = 16;

// InvalidArgument (INVALID_GENERATOR) unless a generator can be in that state:
// it draws four numbers at a time.
absl::Status CheckPhiloxState(absl::string_view bytes);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_PHILOX_STATE_H_
