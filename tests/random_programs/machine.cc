#include "tests/random_programs/machine.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"

namespace djinn::random_programs {
namespace {

bool IsOptionalTensorList(const c10::Argument& argument) {
  const auto* list = argument.real_type()->castRaw<c10::ListType>();
  return list != nullptr &&
         list->getElementType()->kind() == c10::TypeKind::OptionalType;
}

// Returns whether a call writes no element, and only changes a tensor's view of
// its storage or lets the storage grow.
bool OnlyResizes(const Step& step) {
  const std::string& name = step.op->schema().name();
  return name.starts_with("aten::resize") || name.starts_with("aten::set_");
}

// Sets the bytes by which a call lets a CPU storage grow to zero, even if the
// call raises.
class ZeroGrowth {
 public:
  explicit ZeroGrowth(const at::Tensor& tensor)
      : tensor_(tensor),
        storage_(tensor.storage().unsafeGetStorageImpl()),
        bytes_(tensor.storage().nbytes()) {}
  ZeroGrowth(const ZeroGrowth&) = delete;
  ZeroGrowth& operator=(const ZeroGrowth&) = delete;
  ~ZeroGrowth() {
    const c10::Storage& storage = tensor_.storage();
    if (!tensor_.is_cpu() || storage.unsafeGetStorageImpl() != storage_) return;
    if (storage.nbytes() <= bytes_) return;
    std::memset(static_cast<char*>(storage.mutable_data()) + bytes_, 0,
                storage.nbytes() - bytes_);
  }

 private:
  at::Tensor tensor_;
  const c10::StorageImpl* storage_;
  size_t bytes_;
};

// Shrinks a result's own storage to its elements, because a remote storage ends
// with its last element.
void Trim(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cpu() ||
      tensor.storage().use_count() > 1) {
    return;
  }
  const size_t end = at::detail::computeStorageNbytes(
      tensor.sizes(), tensor.strides(), tensor.element_size(),
      tensor.storage_offset());
  if (tensor.storage().nbytes() > end) tensor.storage().set_nbytes(end);
}

// Returns whether autograd regards the result as a view although no other
// tensor shares its memory. A composite has made such a view of an
// intermediate, perhaps on only one of the devices.
bool IsPrivateView(const at::Tensor& result,
                   const std::vector<at::Tensor>& operands) {
  if (!result.defined() || !result.is_view() || result.requires_grad() ||
      result.storage().use_count() > 2) {
    return false;
  }
  for (const at::Tensor& operand : operands) {
    if (operand.defined() && operand.is_alias_of(result)) return false;
  }
  return true;
}

void ZeroStorage(const at::Tensor& tensor) {
  if (tensor.is_cpu() && tensor.storage().nbytes() > 0) {
    std::memset(tensor.storage().mutable_data(), 0, tensor.storage().nbytes());
  }
}

}  // namespace

std::vector<int> SlotsOf(const Step& step) {
  std::vector<int> slots;
  for (const Argument& argument : step.arguments) {
    if (const auto* slot = std::get_if<Slot>(&argument)) {
      slots.push_back(slot->index);
    } else if (const auto* list = std::get_if<SlotList>(&argument)) {
      for (const int index : list->indices) {
        if (index != kNoTensor) slots.push_back(index);
      }
    }
  }
  return slots;
}

GradientScope::GradientScope(Mode mode) {
  if (mode == Mode::kInference) inference_.emplace();
  if (mode != Mode::kNormal) gradients_.emplace(false);
}

Machine::Machine(c10::Device device, const Callable& callable,
                 const Given& given)
    : device_(device), slots_(callable.slots), attribute_(given.attribute) {
  std::copy(given.arguments.begin(), given.arguments.end(), slots_.begin());
  std::copy(given.parameters.begin(), given.parameters.end(),
            slots_.begin() + callable.arguments);
}

std::vector<at::Tensor> Perform(const Callable& callable, const Given& given,
                                c10::Device device) {
  Machine machine(device, callable, given);
  for (const Step& step : callable.steps) {
    machine.Store(step, machine.Execute(step));
  }
  return machine.Outputs(callable);
}

std::vector<at::Tensor> Machine::Outputs(const Callable& callable) const {
  std::vector<at::Tensor> outputs;
  for (const int index : callable.outputs) {
    const at::Tensor& output = slot(index);
    outputs.push_back(callable.detached && output.defined() ? output.detach()
                                                            : output);
  }
  return outputs;
}

Given Machine::GivenBy(const Step& step) const {
  Given given;
  const auto add = [&](size_t argument, std::vector<at::Tensor>* tensors) {
    for (const int index : std::get<SlotList>(step.arguments[argument]).indices)
      tensors->push_back(slot(index));
  };
  add(0, &given.arguments);
  add(1, &given.parameters);
  given.attribute = std::get<c10::IValue>(step.arguments[2]);
  return given;
}

std::vector<at::Tensor> Machine::Operands(const Step& step) const {
  std::vector<at::Tensor> tensors;
  for (const int slot : SlotsOf(step)) tensors.push_back(slots_[slot]);
  return tensors;
}

bool Machine::Ready(const Step& step) const {
  for (const int slot : SlotsOf(step)) {
    if (!slots_[slot].defined()) return false;
  }
  return true;
}

void Machine::Store(const Step& step, const std::vector<at::Tensor>& results) {
  for (size_t i = 0; i < step.results.size(); ++i) {
    slots_[step.results[i]] = i < results.size() ? results[i] : at::Tensor();
  }
}

std::vector<at::Tensor> Machine::Execute(const Step& step,
                                         const Substitute* substitute) {
  const GradientScope mode(step.mode);
  const auto operand = [&](size_t i) -> at::Tensor& {
    return slots_[std::get<Slot>(step.arguments[i]).index];
  };
  const auto constant = [&](size_t i) -> const c10::IValue& {
    return std::get<c10::IValue>(step.arguments[i]);
  };
  switch (step.kind) {
    case Step::Kind::kCall:
      return Call(step, substitute);
    case Step::Kind::kUpload: {
      const at::Tensor source = constant(0).toTensor();
      return {device_.is_cpu() ? source.clone() : source.to(device_)};
    }
    case Step::Kind::kDrop:
      operand(0) = at::Tensor();
      return {};
    case Step::Kind::kRead: {
      const at::Tensor value = operand(0).detach();
      // Numbers are read by item(), other tensors by a copy, to test both.
      if (value.dim() == 0 && value.scalar_type() != at::kBool) {
        at::Tensor read = at::empty({}, value.options().device(at::kCPU));
        return {read.fill_(value.item())};
      }
      return {value.cpu().clone(at::MemoryFormat::Contiguous)};
    }
    case Step::Kind::kSeed:
      at::manual_seed(static_cast<uint64_t>(constant(0).toInt()));
      return {};
    case Step::Kind::kRequiresGrad:
      operand(0).requires_grad_(constant(1).toBool());
      return {};
    case Step::Kind::kBackward:
      torch::autograd::backward({operand(0)},
                                {at::ones_like(operand(0).detach())},
                                constant(1).toBool());
      return {};
    case Step::Kind::kLearn:
      if (operand(0).requires_grad()) {
        torch::autograd::backward({operand(0)},
                                  {at::ones_like(operand(0).detach())});
      }
      return {};
    case Step::Kind::kGrad:
      return {operand(0).grad()};
    case Step::Kind::kClearGrad:
      if (constant(1).toBool()) {
        operand(0).mutable_grad().reset();
      } else if (operand(0).grad().defined()) {
        operand(0).mutable_grad().zero_();
      }
      return {};
    case Step::Kind::kUpdate:
      if (operand(0).grad().defined()) {
        const c10::AutoGradMode no_grad(false);
        operand(0).sub_(operand(0).grad(), constant(1).toScalar());
      }
      return {};
    case Step::Kind::kSetData:
      operand(0).set_data(operand(1));
      return {};
    case Step::Kind::kSetFast:
      return {};  // does not concern a device
    case Step::Kind::kCallable:
      return invoke_ ? invoke_(*step.callable, GivenBy(step))
                     : Perform(*step.callable, GivenBy(step), device_);
  }
  return {};
}

std::vector<at::Tensor> Machine::Call(const Step& step,
                                      const Substitute* substitute) {
  const auto& schema_arguments = step.op->schema().arguments();
  torch::jit::Stack stack;
  std::deque<ZeroGrowth> grown;
  for (size_t i = 0; i < step.arguments.size(); ++i) {
    const c10::Argument& formal = schema_arguments[i];
    const auto tensor = [&](int index) {
      return substitute == nullptr ? slots_[index]
                                   : (*substitute)(formal, slots_[index]);
    };
    const Argument& argument = step.arguments[i];
    if (const auto* value = std::get_if<c10::IValue>(&argument)) {
      stack.push_back(*value);
    } else if (const auto* slot = std::get_if<Slot>(&argument)) {
      stack.emplace_back(tensor(slot->index));
      if (OnlyResizes(step) && i == 0) {
        grown.emplace_back(slots_[slot->index]);
      }
    } else if (std::holds_alternative<ThisDevice>(argument)) {
      stack.emplace_back(device_);
    } else if (std::holds_alternative<Attribute>(argument)) {
      stack.push_back(attribute_);
    } else if (IsOptionalTensorList(formal)) {
      c10::List<std::optional<at::Tensor>> list;
      for (const int index : std::get<SlotList>(argument).indices) {
        list.push_back(index == kNoTensor
                           ? std::nullopt
                           : std::optional<at::Tensor>(tensor(index)));
      }
      stack.emplace_back(std::move(list));
    } else {
      c10::List<at::Tensor> list;
      for (const int index : std::get<SlotList>(argument).indices) {
        list.push_back(tensor(index));
      }
      stack.emplace_back(std::move(list));
    }
  }
  step.op->callBoxed(stack);
  std::vector<at::Tensor> results;
  for (const c10::IValue& value : stack) {
    if (value.isTensor()) {
      results.push_back(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorList()) {
        results.push_back(tensor);
      }
    }
  }
  stack.clear();
  for (const at::Tensor& result : results) Trim(result);
  for (at::Tensor& result : results) {
    if (IsPrivateView(result, Operands(step))) result = result.detach();
  }
  if (step.op->schema().name().starts_with("aten::empty")) {
    for (const at::Tensor& result : results) ZeroStorage(result);
  }
  return results;
}

std::string MessageOf(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  std::string message =
      of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
  message = message.substr(0, message.find("\nException raised from"));
  absl::AsciiStrToLower(&message);
  // PyTorch spells some data types in two ways.
  return absl::StrReplaceAll(message, {{"remote_accelerator:0", "cpu"},
                                       {"remote_accelerator", "cpu"},
                                       {"privateuseone:0", "cpu"},
                                       {"privateuseone", "cpu"},
                                       {"privateuse1", "cpu"},
                                       {"long int", "long"},
                                       {"short int", "short"},
                                       {"signed char", "char"},
                                       {"unsigned char", "byte"},
                                       {"c10::", ""}});
}

}  // namespace djinn::random_programs
