#include "gpu_worker/device/cuda/philox_state.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace djinn::worker {

absl::Status CheckPhiloxState(absl::string_view bytes) {
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
