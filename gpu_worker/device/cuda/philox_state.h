// Checks the state of a CUDA generator, as torch.cuda.get_rng_state() returns
// it: a seed and an offset, 64 bits each.
#ifndef GPU_WORKER_DEVICE_CUDA_PHILOX_STATE_H_
#define GPU_WORKER_DEVICE_CUDA_PHILOX_STATE_H_

#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/error.h"

namespace djinn::worker {

inline constexpr uint64_t kPhiloxStateBytes = 16;

// Returns InvalidArgument (INVALID_GENERATOR) unless a generator can be in that
// state. A generator draws four numbers at a time, so its offset is a multiple
// of four.
inline absl::Status CheckPhiloxState(absl::string_view bytes) {
  const auto bad = [](absl::string_view what) {
    return MakeError(absl::StatusCode::kInvalidArgument, "INVALID_GENERATOR",
                     absl::StrCat("not the state of a generator: ", what));
  };
  if (bytes.size() != kPhiloxStateBytes) {
    return bad(
        absl::StrCat(bytes.size(), " bytes, must be ", kPhiloxStateBytes));
  }
  uint64_t offset;
  std::memcpy(&offset, bytes.data() + sizeof(uint64_t), sizeof(offset));
  if (offset % 4 != 0) {
    return bad(absl::StrCat("an offset of ", offset, ", no multiple of 4"));
  }
  return absl::OkStatus();
}

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_PHILOX_STATE_H_
