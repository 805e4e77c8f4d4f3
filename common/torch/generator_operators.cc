#include "common/torch/generator_operators.h"

#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>

#include "ATen/core/Generator.h"
#include "ATen/core/Tensor.h"
#include "ATen/core/dispatch/Dispatcher.h"
#include "ATen/ops/empty.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "torch/library.h"

namespace djinn {
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

// Calls a function of a call's generator, with the generator's lock.
template <typename Function>
void With(std::optional<at::Generator>& generator, const Function& function) {
  TORCH_CHECK(generator.has_value(), "a generator must be named");
  std::lock_guard<std::mutex> lock(generator->mutex());
  function(*generator);
}

at::Tensor State(const at::Tensor& like, std::optional<at::Generator> generator,
                 int64_t bytes) {
  at::Tensor state;
  With(generator, [&](at::Generator& one) { state = one.get_state(); });
  TORCH_CHECK(state.numel() == bytes, "a generator's state has ", state.numel(),
              " bytes, not ", bytes);
  return state.to(like.device());
}

at::Tensor SetState(const at::Tensor& state,
                    std::optional<at::Generator> generator) {
  TORCH_CHECK(state.scalar_type() == c10::kByte && state.dim() == 1,
              "a generator's state is a vector of bytes");
  const at::Tensor bytes = state.cpu().contiguous();
  With(generator, [&](at::Generator& one) {
    if (one.device().is_cpu()) {
      const absl::Status status = CheckCpuGeneratorState(
          {static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()});
      TORCH_CHECK(status.ok(), std::string(status.message()));
    }
    one.set_state(bytes);
  });
  return at::empty({0}, state.options());
}

at::Tensor MetaOfState(const at::Tensor& like, std::optional<at::Generator>,
                       int64_t bytes) {
  return at::empty({bytes}, like.options().dtype(c10::kByte));
}

at::Tensor MetaOfSetState(const at::Tensor& state,
                          std::optional<at::Generator>) {
  return at::empty({0}, state.options());
}

class Definitions {
 public:
  Definitions() {
    library_.def(
        "state(Tensor like, *, Generator? generator, int bytes) -> Tensor");
    library_.def("set_state(Tensor state, *, Generator? generator) -> Tensor");
    for (torch::Library* const library : {&cpu_, &cuda_}) {
      library->impl("state", TORCH_FN(State));
      library->impl("set_state", TORCH_FN(SetState));
    }
    meta_.impl("state", TORCH_FN(MetaOfState));
    meta_.impl("set_state", TORCH_FN(MetaOfSetState));
  }

 private:
  torch::Library library_{torch::Library::DEF, "djinn_random", std::nullopt,
                          __FILE__, __LINE__};
  torch::Library cpu_{torch::Library::IMPL, "djinn_random",
                      c10::DispatchKey::CPU, __FILE__, __LINE__};
  torch::Library cuda_{torch::Library::IMPL, "djinn_random",
                       c10::DispatchKey::CUDA, __FILE__, __LINE__};
  torch::Library meta_{torch::Library::IMPL, "djinn_random",
                       c10::DispatchKey::Meta, __FILE__, __LINE__};
};

}  // namespace

void DefineGeneratorOperators() {
  // Never destroyed, because the dispatcher outlives static destructors. A
  // process may load two libraries that contain this function.
  static const Definitions* const definitions =
      c10::Dispatcher::singleton()
              .findSchema({absl::StrCat(kRandomNamespace, "state"), ""})
              .has_value()
          ? nullptr
          : new Definitions;
  (void)definitions;
}

absl::Status CheckCpuGeneratorState(absl::string_view bytes) {
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

}  // namespace djinn
