#include "client_lib/callable/host_effects.h"

#include <ATen/core/List.h>
#include <c10/util/StringUtil.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/capture/device/call_site.h"
#include "client_lib/capture/device/remote_tensor.h"
#include "client_lib/capture/operators/tensors_of.h"

namespace djinn::capture {
namespace {

const c10::StorageImpl* MemoryOf(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return nullptr;
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

}  // namespace

void HostEffects::Before(const c10::OperatorHandle& op,
                         const torch::jit::Stack& stack) {
  written_.clear();
  NoteRecording(nullptr);
  if (!refusal_.empty()) return;
  const std::vector<c10::Argument>& arguments = op.schema().arguments();
  const size_t first = stack.size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* const alias = arguments[i].alias_info();
    const bool written = alias != nullptr && alias->isWrite();
    ForEachTensor(stack[first + i], [&](const at::Tensor& tensor) {
      LookAt(op, tensor, written);
    });
  }
}

void HostEffects::LookAt(const c10::OperatorHandle& op,
                         const at::Tensor& tensor, bool written) {
  if (IsRemote(tensor)) {
    if (tensor.device().index() != device_->index()) {
      Refuse(op, c10::str("uses ", tensor.device(), " as well"));
    } else if (written &&
               !made_remote_.contains(tensor.unsafeGetTensorImpl())) {
      written_.push_back({tensor, c10::DimVector(tensor.sizes()),
                          c10::DimVector(tensor.strides()),
                          tensor.storage_offset(), MemoryOf(tensor)});
    }
    return;
  }
  // A number of the program's, which its language made a tensor.
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) return;
  if (tensor.device().is_meta() || made_.contains(MemoryOf(tensor))) return;
  Refuse(op, written ? "writes a tensor of this process"
                     : "reads a tensor of this process");
}

void HostEffects::After(const c10::OperatorHandle& op,
                        const torch::jit::Stack& stack) {
  for (const Geometry& before : written_) {
    const at::Tensor& tensor = before.tensor;
    if (tensor.sizes() != c10::IntArrayRef(before.sizes) ||
        tensor.strides() != c10::IntArrayRef(before.strides) ||
        tensor.storage_offset() != before.offset ||
        MemoryOf(tensor) != before.storage) {
      Refuse(op, "changes the shape of a tensor that was there before");
    }
  }
  // Nothing may be kept alive by being watched.
  written_.clear();
  NoteRecording(&op);
  if (!refusal_.empty()) return;
  const std::vector<c10::Argument>& returns = op.schema().returns();
  const size_t first = stack.size() - returns.size();
  for (size_t i = 0; i < returns.size(); ++i) {
    // What was written is handed back: it was there before.
    const c10::AliasInfo* const alias = returns[i].alias_info();
    if (alias != nullptr && alias->isWrite()) continue;
    ForEachTensor(stack[first + i],
                  [&](const at::Tensor& tensor) { NoteResult(op, tensor); });
  }
}

void HostEffects::NoteResult(const c10::OperatorHandle& op,
                             const at::Tensor& tensor) {
  if (IsRemote(tensor)) {
    made_remote_.insert_or_assign(
        tensor.unsafeGetTensorImpl(),
        c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr()));
    return;
  }
  if (!tensor.device().is_cpu() || MemoryOf(tensor) == nullptr) return;
  if (op.hasTag(at::Tag::nondeterministic_seeded)) {
    Refuse(op, "draws random numbers in this process");
    return;
  }
  made_.try_emplace(MemoryOf(tensor), tensor.storage());
}

void HostEffects::Refuse(const c10::OperatorHandle& op,
                         const std::string& what) {
  if (!refusal_.empty()) return;
  refusal_ = absl::StrCat(toString(op.operator_name()), " ", what,
                          DescribeThisPlace());
}

void HostEffects::NoteRecording(const c10::OperatorHandle* op) {
  if (!refusal_.empty()) return;
  const absl::Status refusal = device_->RecordingRefusal(lane_);
  if (refusal.ok()) return;
  refusal_ = std::string(refusal.message());
  if (op == nullptr) return;
  // Some name it already.
  if (!absl::StrContains(refusal_, "::")) {
    absl::StrAppend(&refusal_, ": ", toString(op->operator_name()));
  }
  refusal_ += DescribeThisPlace();
}

}  // namespace djinn::capture
