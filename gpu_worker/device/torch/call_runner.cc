#include "gpu_worker/device/torch/call_runner.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "ATen/core/List.h"
#include "ATen/core/Tensor.h"
#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "c10/core/InferenceMode.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "gpu_worker/device/torch/generator_scope.h"
#include "gpu_worker/device/torch/torch_buffer.h"
#include "gpu_worker/device/torch/torch_error.h"

namespace djinn::worker {
namespace {

bool IsPlain(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided && !tensor.is_quantized() &&
         !tensor.is_nested() && !tensor._is_zerotensor() &&
         tensor.has_storage();
}

// Returns the view without repeated elements: a dimension of stride 0 repeats
// one element.
srg::TensorView Distinct(const srg::TensorView& view) {
  srg::TensorView distinct = view;
  for (size_t i = 0; i < distinct.sizes.size(); ++i) {
    if (distinct.strides[i] == 0 && distinct.sizes[i] > 1) {
      distinct.sizes[i] = 1;
    }
  }
  // Bytes are copied unchanged.
  distinct.conjugate = false;
  distinct.negative = false;
  return distinct;
}

absl::Status Failed(absl::string_view message) {
  return MakeError(absl::StatusCode::kInvalidArgument, kOperatorFailed,
                   message);
}

// A thread's vectors, kept for their capacity. They are empty between calls, so
// that they hold no storage.
struct Scratch {
  torch::jit::Stack stack;
  std::vector<std::pair<at::Tensor, const Operand*>> written;

  void Clear() {
    stack.clear();
    written.clear();
  }
};

class ScratchScope {
 public:
  ScratchScope() : scratch_(&ThreadScratch()) {}
  ~ScratchScope() { scratch_->Clear(); }
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;

  Scratch* operator->() const { return scratch_; }

 private:
  static Scratch& ThreadScratch() {
    thread_local Scratch scratch;
    return scratch;
  }
  Scratch* const scratch_;
};

// Executes one call once.
class CallRunner {
 public:
  CallRunner(const TorchCall& call, const TorchTarget& target,
             const NodeInput& input, ArgumentCheck* check)
      : call_(call),
        target_(target),
        input_(input),
        check_(check),
        generator_(target) {}

  absl::Status Run(std::vector<NodeResult>* results) {
    if (const absl::Status& unusable = call_.call.unusable; !unusable.ok()) {
      return ErrorReason(unusable).empty() ? Failed(unusable.message())
                                           : unusable;
    }
    scratch_->stack = call_.call.values;
    for (const Place& place : call_.call.places) {
      DJINN_RETURN_IF_ERROR(Fill(place));
    }
    if (DrawsImplicitly()) {
      DJINN_ASSIGN_OR_RETURN(generator_buffer_,
                             SlotBuffer(*call_.implicit_generator_slot));
      DJINN_RETURN_IF_ERROR(generator_.LoadAsDefault(*generator_buffer_));
    }
    if (check_ != nullptr) {
      DJINN_RETURN_IF_ERROR(check_->Check(&scratch_->stack));
    }
    call_.op.callBoxed(&scratch_->stack);
    DJINN_RETURN_IF_ERROR(SettleWritten());
    DJINN_RETURN_IF_ERROR(Collect(results));
    if (generator_buffer_ != nullptr) generator_.Store(*generator_buffer_);
    return absl::OkStatus();
  }

 private:
  bool DrawsImplicitly() const {
    return call_.implicit_generator_slot.has_value() &&
           !(call_.draws_unless_zero.has_value() &&
             input_.floats[*call_.draws_unless_zero] == 0);
  }

  absl::StatusOr<const TorchBuffer*> SlotBuffer(uint32_t slot) const {
    if (slot >= input_.slots.size() || input_.slots[slot] == nullptr) {
      return absl::InternalError(absl::StrCat("slot ", slot, " is empty"));
    }
    return static_cast<const TorchBuffer*>(input_.slots[slot].get());
  }

  absl::StatusOr<at::Tensor> Fill(const TensorSource& source, bool written) {
    if (const auto* operand = std::get_if<Operand>(&source)) {
      DJINN_ASSIGN_OR_RETURN(const TorchBuffer* const buffer,
                             SlotBuffer(operand->view.slot));
      // This check is the last line of defence: other tenants' memory lies
      // behind the buffer.
      if (operand->extent_bytes > buffer->size_bytes()) {
        return MakeError(absl::StatusCode::kInvalidArgument, "INVALID_VIEW",
                         absl::StrCat("view ", srg::DescribeView(operand->view),
                                      " ends at byte ", operand->extent_bytes,
                                      " of ", buffer->size_bytes()));
      }
      at::Tensor tensor = MakeTensor(operand->view, buffer->storage());
      if (written) {
        buffer->WillBeWritten();
        scratch_->written.emplace_back(tensor, operand);
      }
      return tensor;
    }
    if (const auto* scalar = std::get_if<srg::ScalarTensor>(&source)) {
      return MakeScalarTensor(*scalar);
    }
    return at::Tensor();
  }

  absl::StatusOr<at::Tensor> MakeScalarTensor(
      const srg::ScalarTensor& scalar) const {
    const std::string& bytes = input_.scalar_tensors[scalar.hole];
    srg::TensorView view;
    view.data_type = scalar.data_type;
    const auto size = static_cast<uint64_t>(srg::ElementSize(scalar.data_type));
    if (bytes.size() != size) {
      return absl::InternalError(absl::StrCat("scalar tensor of ", bytes.size(),
                                              " bytes, expected ", size));
    }
    c10::Storage storage = UninitialisedStorage(size);
    std::memcpy(storage.mutable_data(), bytes.data(), size);
    at::Tensor tensor = MakeTensor(view, storage);
    if (scalar.wrapped_number) {
      tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    return tensor;
  }

  template <typename Element>
  absl::StatusOr<c10::IValue> FillList(const TensorListSource& list,
                                       bool written) {
    c10::List<Element> tensors;
    tensors.reserve(list.entries.size());
    for (const TensorSource& entry : list.entries) {
      if (std::holds_alternative<std::monostate>(entry)) {
        tensors.push_back(Element());
        continue;
      }
      DJINN_ASSIGN_OR_RETURN(at::Tensor tensor, Fill(entry, written));
      tensors.push_back(Element(std::move(tensor)));
    }
    return c10::IValue(std::move(tensors));
  }

  absl::Status Fill(const Place& place) {
    c10::IValue& value = scratch_->stack[place.argument];
    if (place.same_as.has_value()) {
      value = scratch_->stack[*place.same_as];
    } else if (const auto* source = std::get_if<TensorSource>(&place.source)) {
      DJINN_ASSIGN_OR_RETURN(at::Tensor tensor, Fill(*source, place.written));
      value = c10::IValue(std::move(tensor));
    } else if (const auto* list =
                   std::get_if<TensorListSource>(&place.source)) {
      if (list->optional) {
        DJINN_ASSIGN_OR_RETURN(
            value, FillList<std::optional<at::Tensor>>(*list, place.written));
      } else {
        DJINN_ASSIGN_OR_RETURN(value,
                               FillList<at::Tensor>(*list, place.written));
      }
    } else if (const auto* hole = std::get_if<srg::FloatHole>(&place.source)) {
      value = c10::IValue(input_.floats[hole->index]);
    } else {
      const uint32_t slot = std::get<srg::GeneratorSlot>(place.source).slot;
      DJINN_ASSIGN_OR_RETURN(generator_buffer_, SlotBuffer(slot));
      DJINN_RETURN_IF_ERROR(generator_.Load(*generator_buffer_));
      value = c10::IValue(generator_.generator());
    }
    return absl::OkStatus();
  }

  // Checks and normalizes written operands after the call. The client resizes
  // an output before the call, so an operator that resized it contradicts the
  // graph. If the operator marked it as conjugated or negated lazily, the
  // operation is executed here, because the mark would be lost.
  absl::Status SettleWritten() const {
    for (auto& [tensor, operand] : scratch_->written) {
      const srg::TensorView& view = operand->view;
      if (tensor.sizes() !=
              c10::IntArrayRef(view.sizes.data(), view.sizes.size()) ||
          tensor.strides() !=
              c10::IntArrayRef(view.strides.data(), view.strides.size()) ||
          tensor.storage_offset() != view.storage_offset) {
        return Failed(absl::StrCat("the operator resized a written operand, ",
                                   srg::DescribeView(view)));
      }
      if (tensor.is_conj() != view.conjugate) {
        tensor._set_conj(view.conjugate);
        tensor.conj_physical_();
      }
      if (tensor.is_neg() != view.negative) {
        tensor._set_neg(view.negative);
        tensor.neg_();
      }
    }
    return absl::OkStatus();
  }

  absl::Status Collect(std::vector<NodeResult>* results) const {
    const torch::jit::Stack& stack = scratch_->stack;
    if (stack.size() != call_.op.schema().returns().size()) {
      return absl::InternalError("the operator broke its schema");
    }
    const size_t before = results->size();
    ResultCollector collector(call_.operand_slots, input_.slots,
                              call_.uninitialised, target_, results);
    for (const uint32_t position : call_.returns) {
      const c10::IValue& value = stack[position];
      if (absl::c_linear_search(call_.unused_results, position)) {
        DJINN_RETURN_IF_ERROR(collector.Add(at::Tensor()));
      } else if (value.isTensor()) {
        DJINN_RETURN_IF_ERROR(collector.Add(value.toTensor()));
      } else if (value.isTensorList()) {
        const c10::List<at::Tensor> list = value.toTensorList();
        for (size_t i = 0; i < list.size(); ++i) {
          DJINN_RETURN_IF_ERROR(collector.Add(list.get(i)));
        }
      } else {
        return absl::InternalError("the operator broke its schema");
      }
    }
    const size_t count = results->size() - before;
    if (count != call_.result_count) {
      return Failed(absl::StrCat("the operator returned ", count,
                                 " tensors, the graph names ",
                                 call_.result_count));
    }
    return absl::OkStatus();
  }

  const TorchCall& call_;
  const TorchTarget& target_;
  const NodeInput& input_;
  ArgumentCheck* const check_;
  ScratchScope scratch_;
  GeneratorScope generator_;
  // The buffer that receives the generator's state; null if no generator is
  // used.
  const TorchBuffer* generator_buffer_ = nullptr;
};

}  // namespace

absl::Status ResultCollector::Add(const at::Tensor& tensor) {
  NodeResult result;
  if (!tensor.defined()) {
    results_->push_back(std::move(result));
    return absl::OkStatus();
  }
  if (!IsPlain(tensor) || !DescribeTensor(tensor, &result.view)) {
    return MakeError(
        absl::StatusCode::kUnimplemented, "UNSUPPORTED_RESULT",
        absl::StrCat("the operator returned a tensor of type ",
                     tensor.toString(), ", not a plain dense one"));
  }
  if (tensor.device() != target_.device()) {
    return MakeError(
        absl::StatusCode::kUnimplemented, "UNSUPPORTED_RESULT",
        absl::StrCat("the operator returned a tensor on ",
                     tensor.device().str(), ", not on the worker's device, ",
                     target_.device().str()));
  }
  const c10::Storage& storage = tensor.storage();
  c10::StorageImpl* const impl = storage.unsafeGetStorageImpl();
  for (const uint32_t slot : operand_slots_) {
    const auto& buffer = static_cast<const TorchBuffer&>(*slots_[slot]);
    if (buffer.IsOver(impl)) {
      result.buffer = slots_[slot];
      result.aliased_slot = slot;
      results_->push_back(std::move(result));
      return absl::OkStatus();
    }
  }
  const uint64_t bytes = storage.nbytes();
  const bool shared =
      std::find(fresh_.begin(), fresh_.end(), impl) != fresh_.end();
  const bool dense =
      tensor.is_non_overlapping_and_dense() && tensor.nbytes() == bytes;
  if (!shared && (dense || srg::CoversStorage(Distinct(result.view), bytes))) {
    if (uninitialised_ && bytes > 0) {
      target_.FillWithZeros(storage);
    }
    fresh_.push_back(impl);
    result.buffer = std::make_shared<TorchBuffer>(storage);
  } else {
    // Zeroes the bytes outside the result, which may be another tenant's.
    c10::Storage own = target_.Zeroed(bytes);
    if (!uninitialised_ && tensor.numel() > 0) {
      const srg::TensorView distinct = Distinct(result.view);
      MakeTensor(distinct, own).copy_(MakeTensor(distinct, storage));
    }
    fresh_.push_back(impl);
    result.buffer = std::make_shared<TorchBuffer>(std::move(own));
  }
  results_->push_back(std::move(result));
  return absl::OkStatus();
}

absl::Status RunCall(const TorchCall& call, const TorchTarget& target,
                     const NodeInput& input, std::vector<NodeResult>* results,
                     ArgumentCheck* check) {
  const size_t before = results->size();
  const absl::Status status = CatchTorch(kOperatorFailed, [&] {
    c10::InferenceMode inference;
    return CallRunner(call, target, input, check).Run(results);
  });
  if (!status.ok()) results->resize(before);
  return status;
}

}  // namespace djinn::worker
