// Holds the global switches of PyTorch on which the bits of results depend, as
// a run carries them (Switches in switches.proto). A default-constructed object
// has PyTorch's defaults.
#ifndef COMMON_SRG_SWITCHES_H_
#define COMMON_SRG_SWITCHES_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

namespace djinn::v1 {
class Switches;
}  // namespace djinn::v1

namespace djinn::srg {

// As v1::Float32Precision.
enum class Float32Precision : uint8_t { kDefault, kNone, kIeee, kTf32, kBf16 };
// As v1::ReducedSums.
enum class ReducedSums : uint8_t { kDefault, kSplitOnly, kNone };

struct Switches {
  // The places of `precisions`.
  enum Products : size_t {
    kMkldnnMatmul,
    kMkldnnConv,
    kMkldnnRnn,
    kCudaMatmul,
    kCudaConv,
    kCudaRnn,
    kProducts
  };

  bool flush_denormal = false;
  bool mkldnn_disabled = false;
  bool mkldnn_deterministic = false;
  bool nnpack_disabled = false;
  bool cpu_fp16_reduction = false;
  bool cudnn_disabled = false;
  bool cudnn_deterministic = false;
  bool cublas_fp16_accumulation = false;
  ReducedSums cublas_fp16_sums = ReducedSums::kDefault;
  ReducedSums cublas_bf16_sums = ReducedSums::kDefault;
  std::array<Float32Precision, kProducts> precisions = {};

  bool operator==(const Switches&) const = default;
};

void ToProto(const Switches& switches, v1::Switches* message);

// Returns InvalidArgument, which names the field, for a value outside its enum
// and for BF16 of a CUDA backend.
absl::StatusOr<Switches> FromProto(const v1::Switches& message);

}  // namespace djinn::srg

#endif  // COMMON_SRG_SWITCHES_H_
