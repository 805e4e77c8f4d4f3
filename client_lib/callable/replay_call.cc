// Runs a captured graph again on the tensors of another call.
#include <ATen/SequenceNumber.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

#include <optional>
#include <utility>
#include <vector>

#include "client_lib/callable/callable_registration.h"
#include "client_lib/capture/device/lane.h"
#include "client_lib/capture/device/remote_tensor.h"
#include "common/base/error.h"

namespace djinn::capture {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor MakeTensor(const TensorPlan& plan, const Tensors& arguments,
                      const Tensors& parameters,
                      const std::vector<c10::Storage>& created) {
  const at::Tensor* base = nullptr;
  switch (plan.kind) {
    case TensorPlan::Kind::kUndefined:
      return at::Tensor();
    case TensorPlan::Kind::kArgument:
      return arguments[plan.index];
    case TensorPlan::Kind::kParameter:
      return parameters[plan.index];
    case TensorPlan::Kind::kOnArgument:
      base = &arguments[plan.index];
      break;
    case TensorPlan::Kind::kOnParameter:
      base = &parameters[plan.index];
      break;
    case TensorPlan::Kind::kCreated:
      break;
  }
  if (plan.is_detached) {
    TensorPlan attached = plan;
    attached.is_detached = false;
    const at::Tensor tensor =
        MakeTensor(attached, arguments, parameters, created);
    const c10::InferenceMode outside(false);
    return tensor.detach();
  }
  std::optional<c10::InferenceMode> mode;
  if (plan.is_inference != c10::InferenceMode::is_enabled()) {
    mode.emplace(plan.is_inference);
  }
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(base != nullptr ? base->storage() : created[plan.index]),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(plan.data_type));
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(plan.sizes, plan.strides, plan.offset);
  // A view has its base's version, so that autograd sees that a saved view was
  // written.
  if (base != nullptr && !tensor.is_inference() && !base->is_inference()) {
    impl->set_version_counter(base->unsafeGetTensorImpl()->version_counter());
  }
  return tensor;
}

// Raises the version as an in-place operator does, so that autograd detects
// that a saved tensor has changed.
void BumpVersion(const at::Tensor& tensor) {
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  if (impl->version_counter().enabled()) impl->bump_version();
}

// Holds the program's own handles of the storages that a captured graph names,
// so that none of these storages is released while the graph is bound to new
// inputs.
class Pins {
 public:
  // Returns false if they are not the storages that the graph captured.
  bool Hold(const CallableRegistration& registration,
            const Tensors& parameters) {
    const std::vector<StoragePtr>& captured = registration.captured_graph->kept;
    for (size_t i = 0; i < captured.size(); ++i) {
      const CallableRegistration::Captured& source = registration.captured[i];
      if (source.source == CallableRegistration::Captured::Source::kGenerator) {
        generator_ = SendGenerator(registration.device, CurrentLane());
        if (generator_.get() != captured[i].get()) return false;
        continue;
      }
      const bool gradient =
          source.source == CallableRegistration::Captured::Source::kGradient;
      const at::Tensor& parameter = parameters[source.parameter];
      const at::Tensor tensor = gradient ? parameter.grad() : parameter;
      if (!HoldStorage(tensor, captured[i].get())) return false;
    }
    return true;
  }

  bool HoldStorage(const at::Tensor& tensor, const RemoteStorage* expected) {
    if (!IsRemote(tensor) || !tensor.has_storage()) return false;
    storages_.push_back(tensor.storage());
    return StorageOf(storages_.back()) == expected;
  }

 private:
  std::vector<c10::Storage> storages_;
  StoragePtr generator_;
};

// Returns whether the captured graph can run on the storages of these arguments
// and gradients.
bool Fits(const CallableRegistration& registration, const Tensors& arguments,
          const Tensors& parameters, Pins* pins,
          std::vector<RemoteStorage*>* inputs) {
  const auto fits = [&](const at::Tensor& tensor) {
    if (!IsRemote(tensor) || !tensor.has_storage()) return false;
    RemoteStorage* const storage = StorageOf(tensor);
    const RemoteStorage* const same = registration.inputs[inputs->size()].get();
    if (same != nullptr && same != storage) return false;
    if (registration.captured_storages.contains(storage)) return false;
    inputs->push_back(storage);
    return pins->HoldStorage(tensor, storage);
  };
  for (const uint32_t argument : registration.input_arguments) {
    if (!fits(arguments[argument])) return false;
  }
  for (const uint32_t parameter : registration.input_gradients) {
    if (!fits(parameters[parameter].grad())) return false;
  }
  return true;
}

// Sets the thread's count of autograd nodes to its value after the captured
// call. A backward pass processes ready nodes in the order of their numbers,
// and each thread numbers its own nodes. If several threads built a graph, the
// order of a sum depends on these counts.
void NumberNodes(uint64_t count) {
  for (; count > 0; --count) at::sequence_number::get_and_increment();
}

}  // namespace

absl::StatusOr<Tensors> ReplayCall(
    const CallableRegistration& registration, const Tensors& arguments,
    const Tensors& parameters, std::shared_ptr<const CapturedNumbers> numbers) {
  Pins pins;
  std::vector<RemoteStorage*> inputs;
  if (!pins.Hold(registration, parameters) ||
      !Fits(registration, arguments, parameters, &pins, &inputs)) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "STALE_RECORDING",
                     "the call uses other storages than the captured one");
  }
  absl::StatusOr<std::vector<StoragePtr>> created =
      registration.device->graphs().Replay(CurrentLane(),
                                           registration.captured_graph, inputs,
                                           std::move(numbers));
  if (!created.ok()) return created.status();
  std::vector<c10::Storage> storages;
  storages.reserve(created->size());
  for (size_t i = 0; i < created->size(); ++i) {
    storages.push_back(
        WrapStorage(std::move((*created)[i]),
                    registration.captured_graph->output_bytes[i]));
  }
  Tensors outputs;
  outputs.reserve(registration.outputs.size());
  for (const TensorPlan& plan : registration.outputs) {
    outputs.push_back(MakeTensor(plan, arguments, parameters, storages));
  }
  // This precedes replacing the gradients.
  for (const uint32_t i : registration.written_gradients) {
    BumpVersion(parameters[i].grad());
  }
  for (const auto& [parameter, plan] : registration.gradients) {
    parameters[parameter].mutable_grad() =
        MakeTensor(plan, arguments, parameters, storages);
  }
  for (const uint32_t i : registration.written_arguments) {
    BumpVersion(arguments[i]);
  }
  for (const uint32_t i : registration.written_parameters) {
    BumpVersion(parameters[i]);
  }
  NumberNodes(registration.nodes);
  return outputs;
}

}  // namespace djinn::capture
