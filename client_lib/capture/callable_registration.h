// A call of a registered callable that can be carried out again: the session's
// recording, and what is around it on this side, tensors and gradients.
//
// Made from a call that was captured; it counts once the next call gave the
// same one. Immutable then.
#ifndef CLIENT_LIB_CAPTURE_CALLABLE_REGISTRATION_H_
#define CLIENT_LIB_CAPTURE_CALLABLE_REGISTRATION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "client_lib/capture/host_effects.h"
#include "client_lib/capture/outside_operators.h"
#include "client_lib/session/recording/recording.h"
#include "client_lib/session/recording/virtual_device.h"

namespace djinn::capture {

// A tensor that a call returns or leaves as a gradient.
struct TensorPlan {
  enum class Kind { kUndefined, kMade, kArgument };
  Kind kind = Kind::kUndefined;
  // Of the recording's outputs, or of the arguments.
  uint32_t index = 0;
  c10::ScalarType data_type = c10::ScalarType::Float;
  c10::DimVector sizes;
  c10::DimVector strides;
  int64_t offset = 0;
  // Made in inference mode, in whichever the call is.
  bool is_inference = false;
  // Detached outside of it since: what is done in place is counted, and may be
  // done there.
  bool is_detached = false;
};

struct CallableRegistration {
  std::shared_ptr<VirtualDevice> device;
  std::shared_ptr<const Recording> recording;
  // Which argument each given storage comes from.
  std::vector<uint32_t> given_arguments;
  // The parameters whose gradients are given behind the arguments.
  std::vector<uint32_t> given_gradients;
  // The storages of both; where not null they must be the same.
  std::vector<StoragePtr> given;
  std::vector<TensorPlan> outputs;
  std::vector<std::pair<uint32_t, TensorPlan>> gradients;  // by parameter
  std::vector<uint32_t> written_arguments;
  std::vector<uint32_t> written_parameters;
  std::vector<uint32_t> written_gradients;  // by parameter
  // Where each storage that the recording keeps comes from.
  struct Kept {
    enum class Source { kParameter, kGradient, kGenerator };
    Source source = Source::kParameter;
    uint32_t parameter = 0;
  };
  std::vector<Kept> kept;
  absl::flat_hash_set<const RemoteStorage*> kept_storages;
  // How many nodes of autograd the call numbered in its thread.
  uint64_t nodes = 0;
  // Two calls in succession gave it: until then it is not carried out.
  bool confirmed = false;
};

// A call that is being captured, or was.
struct CapturedCall {
  // See call_guard.h; with the gradients' behind the call's.
  std::string key;
  std::string call_guard;
  std::string guard;
  uint32_t lane = 0;
  std::shared_ptr<VirtualDevice> device;
  std::vector<at::Tensor> arguments;
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients_before;
  // See GradientsToGive().
  std::vector<uint32_t> given_gradients;
  OutsideOperators outside_before;
  std::unique_ptr<HostEffects> effects;
  OperatorObserver* outer_observer = nullptr;
  // What autograd was to number the thread's next node with.
  uint64_t next_node = 0;
};

// The parameters whose gradients a call like an earlier one is to be given, as
// it is given arguments: all that the earlier one used, once one of them is
// another; none before. So it is with micro-batches whose gradients add up,
// after the optimizer has dropped the earlier ones.
std::vector<uint32_t> GradientsToGive(
    const CallableRegistration& before,
    const std::vector<at::Tensor>& parameters);

// Ends the recording in every case. FailedPrecondition, with a text for people,
// when the call cannot be carried out again.
absl::StatusOr<std::shared_ptr<CallableRegistration>> Register(
    const CapturedCall& call, const std::vector<at::Tensor>& outputs);

// Whether two calls did the same, on other given storages.
bool SameCalls(const CallableRegistration& a, const CallableRegistration& b);

// Carries it out on these tensors, and sets gradients: what the call returns.
// Autograd goes on numbering the thread's nodes as after the call.
// FailedPrecondition (STALE_RECORDING) when it does not fit them, or what it
// uses is gone.
absl::StatusOr<std::vector<at::Tensor>> CarryOut(
    const CallableRegistration& registration,
    const std::vector<at::Tensor>& arguments,
    const std::vector<at::Tensor>& parameters);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_CALLABLE_REGISTRATION_H_
