#include "client_lib/callable/side_effects.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/List.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/variable.h>

#include <cstring>
#include <mutex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/callable/call_guard.h"
#include "client_lib/capture/device/lane.h"
#include "client_lib/capture/device/remote_generator.h"
#include "client_lib/capture/device/remote_tensor.h"
#include "client_lib/capture/operators/boxed_call.h"

namespace djinn::capture {
namespace {

const c10::StorageImpl* MemoryOf(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return nullptr;
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

at::Tensor StateOfCpuGenerator() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

bool SameBytes(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

at::Tensor GradientOf(const at::Tensor& tensor) {
  return tensor.is_leaf() ? tensor.grad() : at::Tensor();
}

uint32_t HooksOf(const at::Tensor& tensor) {
  namespace impl = torch::autograd::impl;
  if (impl::get_autograd_meta(tensor) == nullptr) return 0;
  return static_cast<uint32_t>(impl::hooks(tensor).size() +
                               (impl::post_acc_grad_hooks(tensor) != nullptr) +
                               CountNodeHooks(tensor));
}

}  // namespace

void SideEffectObserver::Before(const c10::OperatorHandle& op,
                                const torch::jit::Stack& stack) {
  written_.clear();
  NoteSessionRefusal(nullptr);
  if (!refusal_.empty()) return;
  const std::vector<c10::Argument>& arguments = op.schema().arguments();
  const size_t first = stack.size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* const alias = arguments[i].alias_info();
    const bool written = alias != nullptr && alias->isWrite();
    ForEachDefinedTensor(stack[first + i], [&](const at::Tensor& tensor) {
      CheckArgument(op, tensor, written);
    });
  }
}

void SideEffectObserver::Allow(const at::Tensor& tensor) {
  if (MemoryOf(tensor) != nullptr) {
    created_.try_emplace(MemoryOf(tensor), tensor.storage());
  }
}

void SideEffectObserver::CheckArgument(const c10::OperatorHandle& op,
                                       const at::Tensor& tensor, bool written) {
  if (IsRemote(tensor)) {
    if (tensor.device().index() != device_->index()) {
      Refuse(op, c10::str("uses ", tensor.device(), " as well"));
    } else if (written &&
               !created_remote_.contains(tensor.unsafeGetTensorImpl())) {
      written_.push_back({tensor, c10::DimVector(tensor.sizes()),
                          c10::DimVector(tensor.strides()),
                          tensor.storage_offset(), MemoryOf(tensor)});
    }
    return;
  }
  // The program wrote a number, which PyTorch wrapped in a tensor.
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) return;
  if (tensor.device().is_meta() || created_.contains(MemoryOf(tensor))) return;
  Refuse(op, written ? "writes a tensor of this process"
                     : "reads a tensor of this process");
}

void SideEffectObserver::After(const c10::OperatorHandle& op,
                               const torch::jit::Stack& stack) {
  for (const Geometry& before : written_) {
    const at::Tensor& tensor = before.tensor;
    if (tensor.sizes() != c10::IntArrayRef(before.sizes) ||
        tensor.strides() != c10::IntArrayRef(before.strides) ||
        tensor.storage_offset() != before.offset ||
        MemoryOf(tensor) != before.storage) {
      Refuse(op, "changes the shape of a tensor that existed before");
    }
  }
  // Observing a tensor must not extend its life.
  written_.clear();
  NoteSessionRefusal(&op);
  if (!refusal_.empty()) return;
  const std::vector<c10::Argument>& returns = op.schema().returns();
  const size_t first = stack.size() - returns.size();
  for (size_t i = 0; i < returns.size(); ++i) {
    // An operator returns the arguments that it wrote, which existed before.
    const c10::AliasInfo* const alias = returns[i].alias_info();
    if (alias != nullptr && alias->isWrite()) continue;
    ForEachDefinedTensor(stack[first + i], [&](const at::Tensor& tensor) {
      NoteResult(op, tensor);
    });
  }
}

void SideEffectObserver::NoteResult(const c10::OperatorHandle& op,
                                    const at::Tensor& tensor) {
  if (IsRemote(tensor)) {
    created_remote_.insert_or_assign(
        tensor.unsafeGetTensorImpl(),
        c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr()));
    return;
  }
  if (!tensor.device().is_cpu() || MemoryOf(tensor) == nullptr) return;
  if (op.hasTag(at::Tag::nondeterministic_seeded)) {
    Refuse(op, "draws random numbers in this process");
    return;
  }
  created_.try_emplace(MemoryOf(tensor), tensor.storage());
}

void SideEffectObserver::Refuse(const c10::OperatorHandle& op,
                                const std::string& what) {
  if (!refusal_.empty()) return;
  refusal_ = absl::StrCat(toString(op.operator_name()), " ", what,
                          DescribeCurrentCallSite());
}

void SideEffectObserver::NoteSessionRefusal(const c10::OperatorHandle* op) {
  if (!refusal_.empty()) return;
  const absl::Status refusal = device_->graphs().Refusal(lane_);
  if (refusal.ok()) return;
  refusal_ = std::string(refusal.message());
  if (op == nullptr) return;
  // Some refusals name the operator already.
  if (!absl::StrContains(refusal_, "::")) {
    absl::StrAppend(&refusal_, ": ", toString(op->operator_name()));
  }
  refusal_ += DescribeCurrentCallSite();
}

SideEffectSnapshot::SideEffectSnapshot(const std::vector<at::Tensor>& arguments,
                                       const std::vector<at::Tensor>& gradients)
    : remote_settings_(RemoteGeneratorSettings()),
      cpu_state_(StateOfCpuGenerator()) {
  arguments_.reserve(arguments.size());
  for (const at::Tensor& tensor : arguments) {
    arguments_.push_back(
        {tensor.storage(), GradientOf(tensor), HooksOf(tensor)});
    AddGradient(arguments_.back().gradient);
  }
  for (const at::Tensor& gradient : gradients) AddGradient(gradient);
}

void SideEffectSnapshot::AddGradient(const at::Tensor& gradient) {
  if (!gradient.defined() || !gradient.has_storage()) return;
  gradients_.push_back({gradient, gradient.storage(), GeometryOf(gradient)});
}

std::string SideEffectSnapshot::FirstChange(
    const std::vector<at::Tensor>& arguments) const {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Argument& before = arguments_[i];
    const at::Tensor& tensor = arguments[i];
    if (!tensor.has_storage() ||
        !tensor.storage().is_alias_of(before.storage)) {
      return "it gives an argument other memory";
    }
    if (!GradientOf(tensor).is_same(before.gradient)) {
      return "it gives an argument another gradient";
    }
    if (HooksOf(tensor) != before.hooks) {
      return "it gives an argument hooks";
    }
  }
  for (const Gradient& before : gradients_) {
    if (!before.tensor.storage().is_alias_of(before.storage)) {
      return "it gives a gradient other memory";
    }
    if (GeometryOf(before.tensor) != before.geometry) {
      return "it changes the metadata of a gradient";
    }
  }
  if (RemoteGeneratorSettings() != remote_settings_) {
    return "it seeds a generator, or sets its state";
  }
  return "";
}

bool SideEffectSnapshot::CpuGeneratorChanged() const {
  return !SameBytes(StateOfCpuGenerator(), cpu_state_);
}

}  // namespace djinn::capture
