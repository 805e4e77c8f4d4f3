#include "client_lib/callable/callable_registration.h"

#include <ATen/SequenceNumber.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <variant>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "client_lib/capture/device/remote_generator.h"
#include "client_lib/capture/device/remote_tensor.h"
#include "client_lib/session/model/call_sites.h"
#include "common/base/error.h"

namespace djinn::capture {
namespace {

using Tensors = std::vector<at::Tensor>;

bool SameTensors(const TensorPlan& a, const TensorPlan& b) {
  return a.kind == b.kind && a.index == b.index && a.data_type == b.data_type &&
         a.sizes == b.sizes && a.strides == b.strides && a.offset == b.offset &&
         a.is_inference == b.is_inference && a.is_detached == b.is_detached;
}

constexpr size_t kNumberBytes = sizeof(uint64_t);

// Calls visit(number) for each of NumbersOf(), a double or a ScalarValue.
template <typename Parts, typename Visit>
void ForEachNumber(Parts&& parts, Visit visit) {
  for (auto& part : parts) {
    for (auto& number : part.floats) visit(&number);
    for (auto& value : part.scalar_tensors) {
      if (value.size == kNumberBytes) visit(value.bytes);
    }
  }
}

bool SameParts(const CapturedPart& a, const CapturedPart& b,
               bool numbers_vary) {
  const auto same_slot = [](const CapturedPart::Slot& x,
                            const CapturedPart::Slot& y) {
    return x.source == y.source && x.index == y.index && x.output == y.output &&
           x.dies == y.dies;
  };
  const auto same_value = [&](const ScalarValue& x, const ScalarValue& y) {
    return x.size == y.size && ((numbers_vary && x.size == kNumberBytes) ||
                                std::memcmp(x.bytes, y.bytes, x.size) == 0);
  };
  const auto same_bits = [&](double x, double y) {
    return numbers_vary || std::memcmp(&x, &y, sizeof(x)) == 0;
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

const RemoteStorage* StorageOfGradient(const at::Tensor& parameter) {
  const at::Tensor& gradient = parameter.grad();
  return IsRemote(gradient) && gradient.has_storage() ? StorageOf(gradient)
                                                      : nullptr;
}

bool Names(const srg::TensorListEntry& entry, uint32_t slot) {
  const auto* const view = std::get_if<srg::TensorView>(&entry);
  return view != nullptr && view->slot == slot;
}

bool Names(const srg::Node& node, uint32_t slot) {
  if (node.implicit_generator_slot == slot) return true;
  for (const srg::Argument& argument : node.arguments) {
    if (const auto* view = std::get_if<srg::TensorView>(&argument)) {
      if (view->slot == slot) return true;
    } else if (const auto* generator =
                   std::get_if<srg::GeneratorSlot>(&argument)) {
      if (generator->slot == slot) return true;
    } else if (const auto* list =
                   std::get_if<std::vector<srg::TensorListEntry>>(&argument)) {
      for (const srg::TensorListEntry& entry : *list) {
        if (Names(entry, slot)) return true;
      }
    }
  }
  return false;
}

absl::Status Refusal(absl::string_view why) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "NOT_REGISTRABLE",
                   why);
}

// Returns the tensor's position among `tensors`, or -1.
int PositionOf(const at::Tensor& tensor, const Tensors& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].is_same(tensor)) return static_cast<int>(i);
  }
  return -1;
}

// Returns the position of the first tensor with this storage, or -1.
int PositionOfStorage(const RemoteStorage* storage, const Tensors& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (IsRemote(tensors[i]) && tensors[i].has_storage() &&
        StorageOf(tensors[i]) == storage) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

// Plans a tensor that the call leaves. It is one of `arguments`, or has a
// storage that the call created and that this function adds to `created`.
absl::Status PlanCreated(const at::Tensor& tensor, const Tensors& arguments,
                         std::vector<RemoteStorage*>* created,
                         TensorPlan* plan) {
  if (!tensor.defined()) return absl::OkStatus();
  if (const int argument = PositionOf(tensor, arguments); argument >= 0) {
    plan->kind = TensorPlan::Kind::kArgument;
    plan->index = static_cast<uint32_t>(argument);
    return absl::OkStatus();
  }
  if (IsRemote(tensor) && !tensor.has_storage()) {
    return Refusal("it returns a sparse tensor");
  }
  if (!IsRemote(tensor) || StorageOf(tensor) == nullptr) {
    return Refusal("it returns a tensor of this process");
  }
  if (tensor.is_conj() || tensor.is_neg()) {
    return Refusal("it returns a tensor that is lazily conjugated or negated");
  }
  plan->kind = TensorPlan::Kind::kCreated;
  RemoteStorage* const storage = StorageOf(tensor);
  const auto found = std::find(created->begin(), created->end(), storage);
  plan->index = static_cast<uint32_t>(found - created->begin());
  if (found == created->end()) created->push_back(storage);
  plan->data_type = tensor.scalar_type();
  plan->sizes = c10::DimVector(tensor.sizes());
  plan->strides = c10::DimVector(tensor.strides());
  plan->offset = tensor.storage_offset();
  plan->is_inference = tensor.is_inference();
  plan->is_detached = plan->is_inference &&
                      tensor.unsafeGetTensorImpl()->version_counter().enabled();
  return absl::OkStatus();
}

// The same for a result of a graph, which may also be a parameter, or a view of
// an argument or a parameter.
absl::Status PlanResult(const at::Tensor& tensor, const Tensors& arguments,
                        const Tensors& parameters,
                        std::vector<RemoteStorage*>* created,
                        TensorPlan* plan) {
  if (const int same = PositionOf(tensor, parameters); same >= 0) {
    plan->kind = TensorPlan::Kind::kParameter;
    plan->index = static_cast<uint32_t>(same);
    return absl::OkStatus();
  }
  const size_t before = created->size();
  const absl::Status status = PlanCreated(tensor, arguments, created, plan);
  if (!status.ok() || plan->kind != TensorPlan::Kind::kCreated) return status;
  const RemoteStorage* const storage = StorageOf(tensor);
  int on = PositionOfStorage(storage, arguments);
  if (on >= 0) {
    plan->kind = TensorPlan::Kind::kOnArgument;
  } else if (on = PositionOfStorage(storage, parameters); on >= 0) {
    plan->kind = TensorPlan::Kind::kOnParameter;
  } else {
    return absl::OkStatus();
  }
  plan->index = static_cast<uint32_t>(on);
  created->resize(before);
  return absl::OkStatus();
}

// Returns the first operator that uses a captured storage and, if call sites
// are on, the call site.
std::string FirstUserOf(const CapturedGraph& captured_graph,
                        uint32_t captured) {
  for (const CapturedPart& part : captured_graph.parts) {
    for (uint32_t slot = 0; slot < part.slots.size(); ++slot) {
      if (part.slots[slot].source != CapturedPart::Slot::Source::kKept ||
          part.slots[slot].index != captured) {
        continue;
      }
      for (size_t i = 0; i < part.graph.nodes.size(); ++i) {
        const srg::Node& node = part.graph.nodes[i];
        if (!Names(node, slot)) continue;
        const uint32_t site = part.sites.empty() ? 0 : part.sites[i];
        return absl::StrCat(
            ": ", part.graph.operators[node.operator_index].FullName(),
            site == 0 ? "" : Describe(CallSiteTable::Global().Get(site)));
      }
    }
  }
  return "";
}

// Returns the source of a captured storage. Fails if the guard does not check
// that source at every call.
absl::StatusOr<CallableRegistration::Captured> SourceOf(
    const CapturedCall& ended, const CapturedGraph& captured_graph,
    uint32_t captured, const StoragePtr& generator) {
  const RemoteStorage* const storage = captured_graph.kept[captured].get();
  using Source = CallableRegistration::Captured::Source;
  for (uint32_t i = 0; i < ended.parameters.size(); ++i) {
    const at::Tensor& parameter = ended.parameters[i];
    if (IsRemote(parameter) && parameter.has_storage() &&
        StorageOf(parameter) == storage) {
      return CallableRegistration::Captured{Source::kParameter, i};
    }
    const at::Tensor& before = ended.gradients_before[i];
    if (!IsRemote(before) || StorageOf(before) != storage) continue;
    if (before.is_same(parameter.grad())) {
      return CallableRegistration::Captured{Source::kGradient, i};
    }
    return Refusal(absl::StrCat("it uses a gradient and then replaces it",
                                FirstUserOf(captured_graph, captured)));
  }
  if (generator.get() == storage) {
    return CallableRegistration::Captured{Source::kGenerator, 0};
  }
  return Refusal(absl::StrCat(
      "it uses a tensor or a generator that is neither an argument nor one of "
      "its parameters",
      FirstUserOf(captured_graph, captured)));
}

// Fills in the fields that depend on the finished captured graph.
absl::Status Complete(const CapturedCall& ended,
                      CallableRegistration* registration) {
  const CapturedGraph& captured_graph = *registration->captured_graph;
  absl::flat_hash_set<const RemoteStorage*> written;
  bool draws = false;
  for (const CapturedPart& part : captured_graph.parts) {
    for (size_t i = 0; i < part.slots.size(); ++i) {
      const CapturedPart::Slot& slot = part.slots[i];
      if (slot.source == CapturedPart::Slot::Source::kMade) continue;
      const RemoteStorage* const storage =
          slot.source == CapturedPart::Slot::Source::kGiven
              ? registration->inputs[slot.index].get()
              : captured_graph.kept[slot.index].get();
      if (slot.writes > 0) written.insert(storage);
      draws |= part.graph.slots[i].kind == srg::Slot::Kind::kGenerator;
    }
  }
  StoragePtr generator;
  if (draws) {
    generator = SendGenerator(ended.device, ended.lane);
  }
  for (uint32_t i = 0; i < captured_graph.kept.size(); ++i) {
    absl::StatusOr<CallableRegistration::Captured> source =
        SourceOf(ended, captured_graph, i, generator);
    if (!source.ok()) return source.status();
    registration->captured.push_back(*source);
    registration->captured_storages.insert(captured_graph.kept[i].get());
  }
  // A gradient may share memory with an argument or parameter, and then has the
  // same version counter.
  absl::flat_hash_set<const RemoteStorage*> counted;
  for (uint32_t i = 0; i < ended.arguments.size(); ++i) {
    if (written.contains(StorageOf(ended.arguments[i]))) {
      registration->written_arguments.push_back(i);
      counted.insert(StorageOf(ended.arguments[i]));
    }
  }
  for (uint32_t i = 0; i < ended.parameters.size(); ++i) {
    const at::Tensor& parameter = ended.parameters[i];
    if (IsRemote(parameter) && parameter.has_storage() &&
        written.contains(StorageOf(parameter))) {
      registration->written_parameters.push_back(i);
      counted.insert(StorageOf(parameter));
    }
  }
  for (uint32_t i = 0; i < ended.parameters.size(); ++i) {
    const at::Tensor& gradient = ended.gradients_before[i];
    if (IsRemote(gradient) && gradient.has_storage() &&
        written.contains(StorageOf(gradient)) &&
        !counted.contains(StorageOf(gradient))) {
      registration->written_gradients.push_back(i);
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<uint32_t> GradientInputs(const CallableRegistration& before,
                                     const Tensors& parameters) {
  std::vector<uint32_t> gradients = before.input_gradients;
  bool differ = !gradients.empty();
  for (size_t i = 0; i < before.captured.size(); ++i) {
    const CallableRegistration::Captured& captured = before.captured[i];
    if (captured.source != CallableRegistration::Captured::Source::kGradient)
      continue;
    gradients.push_back(captured.parameter);
    differ |= StorageOfGradient(parameters[captured.parameter]) !=
              before.captured_graph->kept[i].get();
  }
  if (!differ) return {};
  std::sort(gradients.begin(), gradients.end());
  return gradients;
}

std::vector<StoragePtr> CapturedOf(const CallableRegistration& registration) {
  std::vector<StoragePtr> captured;
  for (size_t i = 0; i < registration.captured.size(); ++i) {
    const StoragePtr& storage = registration.captured_graph->kept[i];
    if (registration.captured[i].source !=
            CallableRegistration::Captured::Source::kGenerator &&
        !storage->dead()) {
      captured.push_back(storage);
    }
  }
  return captured;
}

size_t BytesOf(const CapturedGraph& captured_graph) {
  size_t bytes = sizeof(captured_graph);
  for (const CapturedPart& part : captured_graph.parts) {
    bytes += part.key.size() +
             part.slots.size() * (sizeof(part.slots[0]) + sizeof(srg::Slot));
    for (const srg::Node& node : part.graph.nodes) {
      bytes += sizeof(node) + node.arguments.size() * sizeof(srg::Argument) +
               node.results.size() * sizeof(srg::Result);
    }
  }
  return bytes;
}

StoragePtr SendGenerator(const std::shared_ptr<VirtualDevice>& device,
                         uint32_t lane) {
  const at::Generator generator =
      DefaultRemoteGenerator(static_cast<c10::DeviceIndex>(device->index()));
  return static_cast<const RemoteGenerator&>(
             *generator.unsafeGetGeneratorImpl())
      .StorageOn(device, lane);
}

absl::StatusOr<std::shared_ptr<CallableRegistration>> Register(
    const CapturedCall& ended, const Tensors& outputs) {
  const auto registration = std::make_shared<CallableRegistration>();
  std::vector<RemoteStorage*> inputs;
  absl::flat_hash_set<const RemoteStorage*> is_input;
  for (uint32_t i = 0; i < ended.arguments.size(); ++i) {
    RemoteStorage* const storage = StorageOf(ended.arguments[i]);
    if (!is_input.insert(storage).second) continue;
    inputs.push_back(storage);
    registration->input_arguments.push_back(i);
    registration->inputs.emplace_back(storage);
  }
  for (const uint32_t i : ended.input_gradients) {
    const at::Tensor& gradient = ended.gradients_before[i];
    if (!IsRemote(gradient) || !gradient.has_storage()) continue;
    RemoteStorage* const storage = StorageOf(gradient);
    if (!is_input.insert(storage).second) continue;
    inputs.push_back(storage);
    registration->input_gradients.push_back(i);
    registration->inputs.emplace_back(storage);
  }
  std::vector<RemoteStorage*> created;
  absl::Status status;
  for (const at::Tensor& tensor : outputs) {
    TensorPlan& plan = registration->outputs.emplace_back();
    status.Update(ended.is_graph
                      ? PlanResult(tensor, ended.arguments, ended.parameters,
                                   &created, &plan)
                      : PlanCreated(tensor, ended.arguments, &created, &plan));
    if (plan.kind == TensorPlan::Kind::kCreated && tensor.requires_grad()) {
      status.Update(
          Refusal("it returns a tensor that autograd may still need (return "
                  "it detached, or call under no_grad)"));
    }
  }
  // The program reads the call's outputs soon, but not the gradients.
  const size_t awaited = created.size();
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
    if (gradient.defined() && !gradient.has_storage()) {
      status.Update(Refusal("a gradient that it leaves is sparse"));
    }
    status.Update(PlanCreated(gradient, {}, &created, &plan));
  }
  absl::StatusOr<std::shared_ptr<const CapturedGraph>> captured_graph =
      ended.device->graphs().Finish(ended.lane, inputs, created, awaited);
  if (!ended.observer->refusal().empty()) {
    return Refusal(ended.observer->refusal());
  }
  if (!status.ok()) return status;
  if (!captured_graph.ok()) return captured_graph.status();
  registration->device = ended.device;
  registration->nodes = at::sequence_number::peek() - ended.next_node;
  registration->captured_graph = *std::move(captured_graph);
  const absl::Status complete = Complete(ended, registration.get());
  if (!complete.ok()) return complete;
  return registration;
}

bool SameCalls(const CallableRegistration& a, const CallableRegistration& b,
               bool numbers_vary) {
  const auto same_part = [&](const CapturedPart& x, const CapturedPart& y) {
    return SameParts(x, y, numbers_vary);
  };
  const auto same_storage = [](const StoragePtr& x, const StoragePtr& y) {
    return x.get() == y.get();
  };
  const auto same_gradient = [](const auto& x, const auto& y) {
    return x.first == y.first && SameTensors(x.second, y.second);
  };
  return a.device == b.device && a.input_arguments == b.input_arguments &&
         a.input_gradients == b.input_gradients &&
         std::equal(a.captured_graph->kept.begin(),
                    a.captured_graph->kept.end(),
                    b.captured_graph->kept.begin(),
                    b.captured_graph->kept.end(), same_storage) &&
         std::equal(a.captured_graph->parts.begin(),
                    a.captured_graph->parts.end(),
                    b.captured_graph->parts.begin(),
                    b.captured_graph->parts.end(), same_part) &&
         std::equal(a.outputs.begin(), a.outputs.end(), b.outputs.begin(),
                    b.outputs.end(), SameTensors) &&
         std::equal(a.gradients.begin(), a.gradients.end(), b.gradients.begin(),
                    b.gradients.end(), same_gradient);
}

std::vector<uint64_t> NumbersOf(const CapturedGraph& captured_graph) {
  std::vector<uint64_t> numbers;
  ForEachNumber(captured_graph.parts, [&](const void* number) {
    std::memcpy(&numbers.emplace_back(), number, kNumberBytes);
  });
  return numbers;
}

std::shared_ptr<const CapturedNumbers> ReplaceNumbers(
    const CapturedGraph& captured_graph, absl::Span<const int32_t> places,
    absl::Span<const uint64_t> values) {
  auto numbers = std::make_shared<CapturedNumbers>();
  numbers->reserve(captured_graph.parts.size());
  for (const CapturedPart& part : captured_graph.parts) {
    numbers->push_back({part.floats, part.scalar_tensors});
  }
  auto place = places.begin();
  ForEachNumber(*numbers, [&](void* number) {
    if (*place >= 0) std::memcpy(number, &values[*place], kNumberBytes);
    ++place;
  });
  return numbers;
}

}  // namespace djinn::capture
