#include "client_lib/capture/registration/generator_states.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/capture/device/backend.h"
#include "client_lib/capture/device/remote_generator.h"
#include "common/torch/generator_operators.h"

namespace djinn::capture {
namespace {

using GetState = at::Tensor(const at::Tensor&, std::optional<at::Generator>,
                            int64_t);
using SetState = at::Tensor(const at::Tensor&, std::optional<at::Generator>);

template <typename Signature>
c10::TypedOperatorHandle<Signature> Find(const char* name) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(name, "")
      .typed<Signature>();
}

RemoteGenerator& DefaultOf(int64_t device) {
  const at::Generator& generator =
      DefaultRemoteGenerator(static_cast<c10::DeviceIndex>(device));
  return *static_cast<RemoteGenerator*>(generator.unsafeGetGeneratorImpl());
}

// Appends a state that only the worker knows, or that the program set. Returns
// whether there is one: otherwise the state is that of the seed.
bool AppendState(RemoteGenerator& generator,
                 const std::optional<RemoteGenerator::Setting>& pending,
                 std::vector<at::Tensor>* saved) {
  if (!pending.has_value()) {
    const at::Tensor like =
        at::empty({0}, at::TensorOptions(generator.device()).dtype(at::kByte));
    static const auto get = Find<GetState>("djinn_random::state");
    saved->push_back(
        get.call(like, DefaultRemoteGenerator(generator.device().index()),
                 static_cast<int64_t>(generator.StateBytes())));
    return true;
  }
  const std::string& bytes = pending->state;
  if (bytes.empty()) return false;
  saved->push_back(at::empty({static_cast<int64_t>(bytes.size())},
                             at::TensorOptions(at::kCPU).dtype(at::kByte)));
  std::memcpy(saved->back().mutable_data_ptr(), bytes.data(), bytes.size());
  return true;
}

// The first tensor has two numbers for each device: the seed, and whether one
// of the other tensors is its state.
std::vector<at::Tensor> Save(c10::IntArrayRef devices) {
  const auto count = static_cast<int64_t>(devices.size());
  std::vector<at::Tensor> saved = {
      at::empty({count, 2}, at::TensorOptions(at::kCPU).dtype(at::kLong))};
  auto* numbers = saved[0].mutable_data_ptr<int64_t>();
  for (const int64_t device : devices) {
    RemoteGenerator& generator = DefaultOf(device);
    const std::optional<RemoteGenerator::Setting> pending =
        generator.PendingSetting();
    *numbers++ = static_cast<int64_t>(
        pending.has_value() ? pending->seed : generator.current_seed());
    *numbers++ = AppendState(generator, pending, &saved) ? 1 : 0;
  }
  return saved;
}

void RestoreOne(RemoteGenerator& generator, uint64_t seed,
                const at::Tensor& state) {
  if (state.defined() && !state.is_cpu()) {
    static const auto set = Find<SetState>("djinn_random::set_state");
    set.call(state, DefaultRemoteGenerator(generator.device().index()));
    return generator.NoteSeed(seed);
  }
  RemoteGenerator::Setting setting;
  setting.seed = seed;
  if (state.defined()) {
    setting.state.assign(static_cast<const char*>(state.const_data_ptr()),
                         state.nbytes());
  }
  // A captured call may restore what has not changed.
  if (generator.PendingSetting() != setting) generator.Set(std::move(setting));
}

void Restore(at::TensorList saved, c10::IntArrayRef devices) {
  const auto count = static_cast<int64_t>(devices.size());
  TORCH_CHECK(!saved.empty() && saved[0].is_cpu() &&
                  saved[0].scalar_type() == at::kLong &&
                  saved[0].is_contiguous() && saved[0].numel() == 2 * count,
              "not the saved states of ", count, " generators");
  const auto* numbers = saved[0].const_data_ptr<int64_t>();
  size_t next = 1;
  for (const int64_t device : devices) {
    const auto seed = static_cast<uint64_t>(*numbers++);
    at::Tensor state;
    if (*numbers++ != 0) {
      TORCH_CHECK(next < saved.size(), "a saved state is missing");
      state = saved[next++];
    }
    RestoreOne(DefaultOf(device), seed, state);
  }
}

}  // namespace

void RegisterGeneratorStates() {
  DefineGeneratorOperators();
  torch::Library& library = KeepForever(
      std::make_unique<torch::Library>(torch::Library::FRAGMENT, "djinn_random",
                                       std::nullopt, __FILE__, __LINE__));
  library.def("save(int[] devices) -> Tensor[]", TORCH_FN(Save));
  library.def("restore(Tensor[] saved, int[] devices) -> ()",
              TORCH_FN(Restore));
}

}  // namespace djinn::capture
