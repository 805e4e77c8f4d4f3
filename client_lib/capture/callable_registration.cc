#include "client_lib/capture/callable_registration.h"

#include <c10/core/ScalarTypeToTypeMeta.h>

#include <algorithm>
#include <cstring>

#include "client_lib/capture/lane.h"
#include "client_lib/capture/remote_generator.h"
#include "client_lib/capture/remote_tensor.h"
#include "common/error.h"

namespace djinn::capture {
namespace {

using Tensors = std::vector<at::Tensor>;

bool SameTensors(const TensorPlan& a, const TensorPlan& b) {
  return a.kind == b.kind && a.index == b.index && a.data_type == b.data_type &&
         a.sizes == b.sizes && a.strides == b.strides && a.offset == b.offset;
}

bool SameParts(const RecordingPart& a, const RecordingPart& b) {
  const auto same_slot = [](const RecordingPart::Slot& x,
                            const RecordingPart::Slot& y) {
    return x.source == y.source && x.index == y.index && x.dies == y.dies;
  };
  const auto same_value = [](const ScalarValue& x, const ScalarValue& y) {
    return x.size == y.size && std::memcmp(x.bytes, y.bytes, x.size) == 0;
  };
  const auto same_bits = [](double x, double y) {
    return std::memcmp(&x, &y, sizeof(x)) == 0;
  };
  return a.key == b.key &&
         std::equal(a.slots.begin(), a.slots.end(), b.slots.begin(),
                    b.slots.end(), same_slot) &&
         std::equal(a.floats.begin(), a.floats.end(), b.floats.begin(),
                    b.floats.end(), same_bits) &&
         std::equal(a.scalar_tensors.begin(), a.scalar_tensors.end(),
                    b.scalar_tensors.begin(), b.scalar_tensors.end(),
                    same_value);
}

at::Tensor MakeTensor(const TensorPlan& plan, const Tensors& arguments,
                      const std::vector<c10::Storage>& made) {
  switch (plan.kind) {
    case TensorPlan::Kind::kUndefined:
      return at::Tensor();
    case TensorPlan::Kind::kArgument:
      return arguments[plan.index];
    case TensorPlan::Kind::kMade:
      break;
  }
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(made[plan.index]),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(plan.data_type));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(plan.sizes, plan.strides,
                                                      plan.offset);
  return tensor;
}

// As an operator that writes in place does, for what autograd has saved.
void BumpVersion(const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

const RemoteGenerator& GeneratorOf(const VirtualDevice& device) {
  return static_cast<const RemoteGenerator&>(
      *DefaultRemoteGenerator(static_cast<c10::DeviceIndex>(device.index()))
           .unsafeGetGeneratorImpl());
}

// Whether the storages are such as the recording can be carried out on.
bool Fits(const CallableRegistration& registration, const Tensors& arguments,
          const Tensors& parameters, std::vector<RemoteStorage*>* given) {
  for (size_t i = 0; i < registration.given_arguments.size(); ++i) {
    RemoteStorage* const storage =
        StorageOf(arguments[registration.given_arguments[i]]);
    const RemoteStorage* const same = registration.given[i].get();
    if (same != nullptr && same != storage) return false;
    if (registration.kept.contains(storage)) return false;
    given->push_back(storage);
  }
  for (const auto& [parameter, storage] : registration.kept_gradients) {
    if (StorageOf(parameters[parameter].grad()) != storage) return false;
  }
  if (registration.draws) {
    // Sends the seed or state that it was given last.
    const RemoteGenerator& generator = GeneratorOf(*registration.device);
    const StoragePtr storage =
        generator.StorageOn(registration.device, CurrentLane());
    if (!registration.kept.contains(storage.get())) return false;
  }
  return true;
}

absl::Status Refusal(absl::string_view why) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "NOT_REGISTRABLE",
                   why);
}

int ArgumentOf(const at::Tensor& tensor, const Tensors& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].is_same(tensor)) return static_cast<int>(i);
  }
  return -1;
}

absl::Status Plan(const at::Tensor& tensor, const Tensors& arguments,
                  std::vector<RemoteStorage*>* made, TensorPlan* plan) {
  if (!tensor.defined()) return absl::OkStatus();
  if (const int argument = ArgumentOf(tensor, arguments); argument >= 0) {
    plan->kind = TensorPlan::Kind::kArgument;
    plan->index = static_cast<uint32_t>(argument);
    return absl::OkStatus();
  }
  if (!IsRemote(tensor) || StorageOf(tensor) == nullptr) {
    return Refusal("it returns a tensor of this process");
  }
  if (tensor.is_conj() || tensor.is_neg()) {
    return Refusal("it returns a tensor that is lazily conjugated or negated");
  }
  plan->kind = TensorPlan::Kind::kMade;
  RemoteStorage* const storage = StorageOf(tensor);
  const auto found = std::find(made->begin(), made->end(), storage);
  plan->index = static_cast<uint32_t>(found - made->begin());
  if (found == made->end()) made->push_back(storage);
  plan->data_type = tensor.scalar_type();
  plan->sizes = c10::DimVector(tensor.sizes());
  plan->strides = c10::DimVector(tensor.strides());
  plan->offset = tensor.storage_offset();
  return absl::OkStatus();
}

// What can only be said once the recording is there.
absl::Status Complete(const CapturedCall& ended,
                      CallableRegistration* registration) {
  const Recording& recording = *registration->recording;
  absl::flat_hash_set<const RemoteStorage*> written;
  absl::flat_hash_set<const RemoteStorage*> generators;
  for (const RecordingPart& part : recording.parts) {
    for (size_t i = 0; i < part.slots.size(); ++i) {
      const RecordingPart::Slot& slot = part.slots[i];
      if (slot.source == RecordingPart::Slot::Source::kMade) continue;
      const RemoteStorage* const storage =
          slot.source == RecordingPart::Slot::Source::kGiven
              ? registration->given[slot.index].get()
              : recording.kept[slot.index].get();
      if (slot.writes > 0) written.insert(storage);
      if (part.structure.slots[i].kind == srg::Slot::Kind::kGenerator) {
        generators.insert(storage);
      }
    }
  }
  for (const StoragePtr& storage : recording.kept) {
    registration->kept.insert(storage.get());
  }
  for (uint32_t i = 0; i < ended.arguments.size(); ++i) {
    if (written.contains(StorageOf(ended.arguments[i]))) {
      registration->written_arguments.push_back(i);
    }
  }
  for (uint32_t i = 0; i < ended.parameters.size(); ++i) {
    const at::Tensor& parameter = ended.parameters[i];
    if (!IsRemote(parameter)) continue;
    if (written.contains(StorageOf(parameter))) {
      registration->written_parameters.push_back(i);
    }
    const at::Tensor& before = ended.gradients_before[i];
    if (IsRemote(before) && registration->kept.contains(StorageOf(before))) {
      if (!before.is_same(parameter.grad())) {
        return Refusal("it uses a gradient and then replaces it");
      }
      registration->kept_gradients.emplace_back(i, StorageOf(before));
    }
  }
  if (generators.empty()) return absl::OkStatus();
  registration->draws = true;
  const RemoteGenerator& generator = GeneratorOf(*ended.device);
  const StoragePtr own = generator.StorageOn(ended.device, ended.lane);
  if (generators.size() > 1 || !generators.contains(own.get())) {
    return Refusal("it draws from a generator of its own");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<CallableRegistration>> Register(
    const CapturedCall& ended, const Tensors& outputs) {
  const auto registration = std::make_shared<CallableRegistration>();
  std::vector<RemoteStorage*> given;
  for (uint32_t i = 0; i < ended.arguments.size(); ++i) {
    RemoteStorage* const storage = StorageOf(ended.arguments[i]);
    if (std::find(given.begin(), given.end(), storage) != given.end()) {
      continue;
    }
    given.push_back(storage);
    registration->given_arguments.push_back(i);
    registration->given.emplace_back(storage);
  }
  std::vector<RemoteStorage*> made;
  absl::Status status;
  for (const at::Tensor& tensor : outputs) {
    TensorPlan& plan = registration->outputs.emplace_back();
    if (tensor.defined() && tensor.requires_grad() &&
        ArgumentOf(tensor, ended.arguments) < 0) {
      status.Update(
          Refusal("it returns a tensor that autograd may still need (return "
                  "it detached, or call under no_grad)"));
    }
    status.Update(Plan(tensor, ended.arguments, &made, &plan));
  }
  for (uint32_t i = 0; i < ended.parameters.size(); ++i) {
    const at::Tensor& parameter = ended.parameters[i];
    if (!parameter.defined() || !parameter.is_leaf()) continue;
    const at::Tensor& gradient = parameter.grad();
    if (gradient.is_same(ended.gradients_before[i])) continue;
    TensorPlan& plan =
        registration->gradients.emplace_back(i, TensorPlan()).second;
    if (gradient.defined() && gradient.requires_grad()) {
      status.Update(
          Refusal("a gradient that it leaves has a gradient of its own"));
    }
    status.Update(Plan(gradient, {}, &made, &plan));
  }
  absl::StatusOr<std::shared_ptr<const Recording>> recording =
      ended.device->FinishRecording(ended.lane, given, made);
  if (!ended.effects->refusal().empty()) {
    return Refusal(ended.effects->refusal());
  }
  if (!status.ok()) return status;
  if (!recording.ok()) return recording.status();
  registration->device = ended.device;
  registration->recording = *std::move(recording);
  const absl::Status complete = Complete(ended, registration.get());
  if (!complete.ok()) return complete;
  return registration;
}

bool SameCalls(const CallableRegistration& a, const CallableRegistration& b) {
  const auto same_storage = [](const StoragePtr& x, const StoragePtr& y) {
    return x.get() == y.get();
  };
  const auto same_gradient = [](const auto& x, const auto& y) {
    return x.first == y.first && SameTensors(x.second, y.second);
  };
  return a.device == b.device && a.given_arguments == b.given_arguments &&
         std::equal(a.recording->kept.begin(), a.recording->kept.end(),
                    b.recording->kept.begin(), b.recording->kept.end(),
                    same_storage) &&
         std::equal(a.recording->parts.begin(), a.recording->parts.end(),
                    b.recording->parts.begin(), b.recording->parts.end(),
                    SameParts) &&
         std::equal(a.outputs.begin(), a.outputs.end(), b.outputs.begin(),
                    b.outputs.end(), SameTensors) &&
         std::equal(a.gradients.begin(), a.gradients.end(), b.gradients.begin(),
                    b.gradients.end(), same_gradient);
}

absl::StatusOr<Tensors> CarryOut(const CallableRegistration& registration,
                                 const Tensors& arguments,
                                 const Tensors& parameters) {
  std::vector<RemoteStorage*> given;
  if (!Fits(registration, arguments, parameters, &given)) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "STALE_RECORDING",
                     "the call is on other storages");
  }
  absl::StatusOr<std::vector<StoragePtr>> made =
      registration.device->Replay(CurrentLane(), registration.recording, given);
  if (!made.ok()) return made.status();
  std::vector<c10::Storage> storages;
  storages.reserve(made->size());
  for (size_t i = 0; i < made->size(); ++i) {
    storages.push_back(WrapStorage(
        std::move((*made)[i]), registration.recording->outputs[i].size_bytes));
  }
  Tensors outputs;
  outputs.reserve(registration.outputs.size());
  for (const TensorPlan& plan : registration.outputs) {
    outputs.push_back(MakeTensor(plan, arguments, storages));
  }
  for (const auto& [parameter, plan] : registration.gradients) {
    parameters[parameter].mutable_grad() =
        MakeTensor(plan, arguments, storages);
  }
  for (const uint32_t i : registration.written_arguments) {
    BumpVersion(arguments[i]);
  }
  for (const uint32_t i : registration.written_parameters) {
    BumpVersion(parameters[i]);
  }
  for (const auto& [parameter, storage] : registration.kept_gradients) {
    BumpVersion(parameters[parameter].grad());
  }
  return outputs;
}

}  // namespace djinn::capture
