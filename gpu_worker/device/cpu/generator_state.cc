#include "gpu_worker/device/cpu/generator_state.h"

#include <cstring>

#include "ATen/CPUGeneratorImpl.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "gpu_worker/device/torch/torch_buffer.h"

namespace djinn::worker {
namespace {

// The layout of PyTorch's state blob, unchanged since its first version so that
// old files load.
constexpr uint32_t kWords = 624;
struct StateLayout {
  uint64_t seed;
  // The number of words not drawn yet, plus one.
  int32_t left;
  int32_t seeded;
  // The index of the next word to draw.
  uint64_t next;
  uint64_t words[kWords];
  // The second of two normal samples, if it is cached for the next draw.
  double normal_x;
  double normal_y;
  double normal_rho;
  int32_t normal_is_valid;
  int32_t padding;
  float next_float_normal;
  uint8_t next_float_normal_is_valid;
  uint8_t more_padding[3];
};
static_assert(sizeof(StateLayout) == 5056);

}  // namespace

uint64_t GeneratorStateBytes() {
  static const uint64_t bytes = SeededState(0)->size_bytes();
  return bytes;
}

std::shared_ptr<Buffer> SeededState(uint64_t seed) {
  const at::Tensor state = at::detail::createCPUGenerator(seed).get_state();
  return std::make_shared<TorchBuffer>(state.storage());
}

absl::Status CheckGeneratorState(absl::string_view bytes) {
  const auto bad = [](absl::string_view what) {
    return MakeError(absl::StatusCode::kInvalidArgument, "INVALID_GENERATOR",
                     absl::StrCat("not the state of a generator: ", what));
  };
  StateLayout state;
  if (bytes.size() != sizeof(state)) {
    return bad(absl::StrCat(bytes.size(), " bytes, must be ", sizeof(state)));
  }
  std::memcpy(&state, bytes.data(), sizeof(state));
  // PyTorch draws from word `next` on until `left` words are drawn, so these
  // must not lie beyond the last word.
  if (state.seeded != 1 || state.left < 1 ||
      state.left > static_cast<int32_t>(kWords) || state.next > kWords ||
      state.next + static_cast<uint64_t>(state.left) > kWords + 1) {
    return bad(absl::StrCat("seeded ", state.seeded, ", ", state.left,
                            " words left from word ", state.next));
  }
  for (const uint64_t word : state.words) {
    if (word > UINT32_MAX) return bad("a word of more than 32 bits");
  }
  if (state.normal_is_valid < 0 || state.normal_is_valid > 1 ||
      state.next_float_normal_is_valid > 1) {
    return bad("a flag that is neither 0 nor 1");
  }
  return absl::OkStatus();
}

}  // namespace djinn::worker
