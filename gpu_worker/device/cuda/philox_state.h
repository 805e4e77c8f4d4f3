// Checks the state of a CUDA generator, as torch.cuda.get_rng_state() returns
// it: a seed and an offset, 64 bits each.
#ifndef GPU_WORKER_DEVICE_CUDA_PHILOX_STATE_H_
#define GPU_WORKER_DEVICE_CUDA_PHILOX_STATE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace djinn::worker {

inline constexpr uint64_t kPhiloxStateBytes = 16;

// Returns InvalidArgument (INVALID_GENERATOR) unless a generator can be in that
// state. A generator draws four numbers at a time, so its offset is a multiple
// of four.
absl::Status CheckPhiloxState(absl::string_view bytes);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_PHILOX_STATE_H_
