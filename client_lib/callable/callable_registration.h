// A call of a registered callable that can be replayed: the session's captured
// graph, with the tensors and gradients around it in this process.
//
// It is created from a captured call and confirmed when the next call creates
// an equal one. It is immutable from then on.
#ifndef CLIENT_LIB_CALLABLE_CALLABLE_REGISTRATION_H_
#define CLIENT_LIB_CALLABLE_CALLABLE_REGISTRATION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/callable/side_effects.h"
#include "client_lib/session/recording/recording.h"
#include "client_lib/session/recording/virtual_device.h"

namespace djinn::capture {

// Describes a tensor that a call returns or leaves as a gradient.
struct TensorPlan {
  // The tensor is new and has a storage that the call created, or that of an
  // argument or a parameter; or it is itself an argument or a parameter.
  enum class Kind {
    kUndefined,
    kCreated,
    kOnArgument,
    kOnParameter,
    kArgument,
    kParameter,
  };
  Kind kind = Kind::kUndefined;
  // The position among the captured graph's outputs, the arguments or the
  // parameters.
  uint32_t index = 0;
  c10::ScalarType data_type = c10::ScalarType::Float;
  c10::DimVector sizes;
  c10::DimVector strides;
  int64_t offset = 0;
  // True if the tensor was created in inference mode, whatever the mode of the
  // call.
  bool is_inference = false;
  // True if an inference tensor was later detached outside of inference mode.
  // In-place changes are then allowed and raise its version.
  bool is_detached = false;
};

struct CallableRegistration {
  std::shared_ptr<VirtualDevice> device;
  std::shared_ptr<const CapturedGraph> captured_graph;
  // The argument from which each input storage comes.
  std::vector<uint32_t> input_arguments;
  // The parameters whose gradients are inputs, after the arguments.
  std::vector<uint32_t> input_gradients;
  // The storages of both. An input that is not null must have this storage.
  std::vector<StoragePtr> inputs;
  std::vector<TensorPlan> outputs;
  std::vector<std::pair<uint32_t, TensorPlan>> gradients;  // by parameter
  std::vector<uint32_t> written_arguments;
  std::vector<uint32_t> written_parameters;
  std::vector<uint32_t> written_gradients;  // by parameter
  // The source of each storage that the graph captured.
  struct Captured {
    enum class Source { kParameter, kGradient, kGenerator };
    Source source = Source::kParameter;
    uint32_t parameter = 0;
  };
  std::vector<Captured> captured;
  absl::flat_hash_set<const RemoteStorage*> captured_storages;
  // The number of autograd nodes that the call numbered in its thread.
  uint64_t nodes = 0;
  // True if two consecutive calls created it. It is not replayed before that.
  bool confirmed = false;
  // The number of the captured graph that confirmed it, or 0.
  uint64_t predecessor = 0;
};

// A call that is being captured, or was captured.
struct CapturedCall {
  // True if the call is that of a graph (RegisteredCallable::Kind). Its results
  // may then be views of its arguments and parameters, or these themselves. A
  // replay returns such views detached.
  bool is_graph = false;
  // See call_guard.h. `guard` is the call's guard followed by the gradients'.
  std::string key;
  std::string call_guard;
  std::string guard;
  uint32_t lane = 0;
  std::shared_ptr<VirtualDevice> device;
  std::vector<at::Tensor> arguments;
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients_before;
  // See GradientInputs().
  std::vector<uint32_t> input_gradients;
  SideEffectSnapshot before;
  std::unique_ptr<SideEffectObserver> observer;
  OperatorObserver* outer_observer = nullptr;
  // The number of the thread's next autograd node when the capture began.
  uint64_t next_node = 0;
  // True if the numbers of equal calls may differ (SameCalls()).
  bool numbers_vary = false;
};

// Returns the parameters whose gradients become inputs of the next capture. If
// any gradient that `before` captured was replaced, these are the parameters of
// all gradients that it used; otherwise there are none. An example is
// micro-batches that accumulate new gradients after the optimizer has dropped
// the earlier ones.
std::vector<uint32_t> GradientInputs(const CallableRegistration& before,
                                     const std::vector<at::Tensor>& parameters);

// Returns the live storages that the graph captured, except generators, which
// belong to no callable.
std::vector<StoragePtr> CapturedOf(const CallableRegistration& registration);

// Returns the approximate memory of the captured graph.
size_t BytesOf(const CapturedGraph& captured_graph);

// Sends the seed or state that the program set last in the device's generator,
// and returns the generator's storage. A capture that met it would be refused,
// because a replay would not send it a second time; a replay sends what is set
// then. Throws djinn::Error.
StoragePtr SendGenerator(const std::shared_ptr<VirtualDevice>& device,
                         uint32_t lane);

// Ends the capture, even if it fails. Returns FailedPrecondition
// (NOT_REGISTRABLE), with a human-readable reason, if the call cannot be
// replayed.
absl::StatusOr<std::shared_ptr<CallableRegistration>> Register(
    const CapturedCall& call, const std::vector<at::Tensor>& outputs);

// Returns whether both calls issued the same operators, possibly on other
// inputs, and with other numbers (NumbersOf()) if these may vary.
bool SameCalls(const CallableRegistration& a, const CallableRegistration& b,
               bool numbers_vary);

// The numbers among the arguments of a captured graph's calls that a replay may
// replace: those of 64 bits, as bits, by part; first those of arguments, then
// those that PyTorch wrapped in tensors.
std::vector<uint64_t> NumbersOf(const CapturedGraph& captured_graph);

// Returns the captured graph's numbers with others in the place of some.
// `places` has, for each of NumbersOf(), the index in `values` of the number
// that replaces it, or -1.
std::shared_ptr<const CapturedNumbers> ReplaceNumbers(
    const CapturedGraph& captured_graph, absl::Span<const int32_t> places,
    absl::Span<const uint64_t> values);

// Replays the call on other tensors, sets their gradients, and returns the
// call's outputs. Autograd numbers the thread's next nodes as it did after the
// captured call. `numbers` replace those of the capture, unless null. Returns
// FailedPrecondition (STALE_RECORDING) if the captured graph does not fit the
// tensors, or a storage that it captured was released.
absl::StatusOr<std::vector<at::Tensor>> ReplayCall(
    const CallableRegistration& registration,
    const std::vector<at::Tensor>& arguments,
    const std::vector<at::Tensor>& parameters,
    std::shared_ptr<const CapturedNumbers> numbers);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CALLABLE_CALLABLE_REGISTRATION_H_
