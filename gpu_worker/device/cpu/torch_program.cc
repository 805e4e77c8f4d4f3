#include "gpu_worker/device/cpu/torch_program.h"

#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "ATen/core/List.h"
#include "ATen/core/Tensor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "c10/core/InferenceMode.h"
#include "common/error.h"
#include "common/status_macros.h"
#include "gpu_worker/device/cpu/generator_state.h"
#include "gpu_worker/device/cpu/joined_products.h"
#include "gpu_worker/device/cpu/node_result.h"
#include "gpu_worker/device/cpu/thread_scope.h"
#include "gpu_worker/device/cpu/torch_buffer.h"
#include "gpu_worker/device/cpu/torch_error.h"

namespace djinn::worker {
namespace {

constexpr absl::string_view kFailed = "OPERATOR_FAILED";

absl::Status Failed(absl::string_view message) {
  return MakeError(absl::StatusCode::kInvalidArgument, kFailed, message);
}

// A thread's vectors, kept for their capacity. Empty between calls, so that
// they hold no storage.
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

// One run of one call.
class CallRunner {
 public:
  CallRunner(const TorchCall& call, const NodeInput& input)
      : call_(call), input_(input) {}

  absl::Status Run(std::vector<NodeResult>* results) {
    if (!call_.call.unusable.ok()) {
      return Failed(call_.call.unusable.message());
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
      // The last line of defence: beyond it lies other tenants' memory.
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
    if (const auto* source = std::get_if<TensorSource>(&place.source)) {
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

  // The client resizes an output before the call, if at all. One that the
  // operator resized is not what the structure says it is. One that it marked
  // as still to be conjugated or negated is: the mark would be lost.
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
                              call_.uninitialised, results);
    for (const uint32_t position : call_.returns) {
      const c10::IValue& value = stack[position];
      if (value.isTensor()) {
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
                                 " tensors, the structure names ",
                                 call_.result_count));
    }
    return absl::OkStatus();
  }

  const TorchCall& call_;
  const NodeInput& input_;
  ScratchScope scratch_;
  GeneratorScope generator_;
  // Where the generator's state goes back to; null when none is in use.
  const TorchBuffer* generator_buffer_ = nullptr;
};

absl::Status RunCall(const TorchCall& call, const NodeInput& input,
                     std::vector<NodeResult>* results) {
  const size_t before = results->size();
  const absl::Status status = CatchTorch(kFailed, [&] {
    c10::InferenceMode inference;
    return CallRunner(call, input).Run(results);
  });
  if (!status.ok()) results->resize(before);
  return status;
}

// The packed form of the call's weight; null when there is none yet.
std::shared_ptr<const PackedMatrix> OfferPacked(const PackedCall& call,
                                                const NodeInput& input,
                                                PackedWeights* weights) {
  static const std::string& kNobody = *new std::string;
  const TorchBuffer* const buffer = call.FindWeight(input.slots);
  if (buffer == nullptr) return nullptr;
  try {
    return weights->Offer(*buffer, call.weight(), call.row_count(),
                          input.tenant != nullptr ? *input.tenant : kNobody);
  } catch (const std::exception&) {
    return nullptr;
  }
}

// Looks at the clock only if somebody wants to know.
class Stopwatch {
 public:
  Stopwatch(Clock* clock, bool runs) : clock_(*clock) {
    if (runs) start_ = clock_.Monotonic();
  }
  uint64_t Nanoseconds() const {
    return static_cast<uint64_t>(
        absl::ToInt64Nanoseconds(clock_.Monotonic() - start_));
  }

 private:
  Clock& clock_;
  absl::Duration start_;
};

absl::Status RunOwn(const PackedCall& call, const PackedMatrix* packed,
                    const SumOrder& order, const NodeInput& input,
                    std::vector<NodeResult>* results) {
  return CatchTorch(
      kFailed, [&] { return call.Run(packed, order, input.slots, results); });
}

}  // namespace

TorchProgram::TorchProgram(std::vector<TorchCall> calls,
                           std::shared_ptr<PackedWeights> weights, Clock* clock)
    : calls_(std::move(calls)), weights_(std::move(weights)), clock_(*clock) {
  for (uint32_t i = 0; i < calls_.size(); ++i) {
    if (calls_[i].joinable.has_value()) {
      products_.push_back(JoinedProducts::ProductOf(i, *calls_[i].joinable));
    }
  }
}

absl::Status TorchProgram::Execute(uint32_t node, const NodeInput& input,
                                   std::vector<NodeResult>* results) const {
  if (node >= calls_.size()) return absl::InternalError("no such node");
  CountThreads();
  return input.fast ? ExecuteFast(node, input, results)
                    : ExecuteStrict(calls_[node], input, results);
}

absl::Status TorchProgram::ExecuteStrict(
    const TorchCall& call, const NodeInput& input,
    std::vector<NodeResult>* results) const {
  if (call.strict_product != nullptr) {
    return ExecuteStrictProduct(call, input, results);
  }
  if (call.alone == nullptr) return RunCall(call, input, results);
  switch (call.alone->Next()) {
    case AloneTrial::Way::kTogether:
      return RunCall(call, input, results);
    case AloneTrial::Way::kAlone: {
      const ThreadScope threads(/*one_thread=*/true);
      return RunCall(call, input, results);
    }
    case AloneTrial::Way::kBoth:
      break;
  }
  return CarryOutBothWays(
      call.operands, call.written_slots, input,
      [&call](const NodeInput& input, std::vector<NodeResult>* results) {
        return RunCall(call, input, results);
      },
      call.alone.get(), results);
}

absl::Status TorchProgram::ExecuteStrictProduct(
    const TorchCall& call, const NodeInput& input,
    std::vector<NodeResult>* results) const {
  StrictProduct& product = *call.strict_product;
  if (product.IsTrialDue()) {
    product.Learn(TryProduct(
        *call.packed,
        [&call](const NodeInput& input, std::vector<NodeResult>* results) {
          return RunCall(call, input, results);
        }));
  }
  const ProductFacts* const facts = product.facts();
  if (facts == nullptr) return RunCall(call, input, results);
  const std::shared_ptr<const PackedMatrix> packed =
      facts->order.has_value()
          ? OfferPacked(*call.packed, input, weights_.get())
          : nullptr;
  const MeasuredTurn turn =
      packed != nullptr ? product.with_packed.Next() : product.unpacked.Next();
  // A way that is not open is measured as what is done instead.
  size_t way = turn.way;
  if (way == StrictProduct::kAlone && !facts->alone_is_equal) {
    way = StrictProduct::kTogether;
  } else if (way == StrictProduct::kOwn && packed == nullptr &&
             !(facts->order.has_value() && call.packed->has_few_rows())) {
    way = StrictProduct::kTogether;
  }
  const bool one_thread =
      way == StrictProduct::kAlone || way == StrictProduct::kOwn;
  const bool own =
      way == StrictProduct::kOwn || way == StrictProduct::kOwnTogether;
  const ThreadScope threads(one_thread);
  const Stopwatch stopwatch(&clock_, turn.measured);
  if (!own ||
      !RunOwn(*call.packed, packed.get(), *facts->order, input, results).ok()) {
    DJINN_RETURN_IF_ERROR(RunCall(call, input, results));
  } else if (input.way != nullptr) {
    *input.way = NodeWay::kPacked;
  }
  if (!turn.measured) return absl::OkStatus();
  const uint64_t cost = Choices::Cost(one_thread ? Choices::kOneThread : 0,
                                      stopwatch.Nanoseconds());
  if (packed == nullptr) {
    product.unpacked.Took(turn.way, cost);
  } else {
    product.with_packed.Took(turn.way, cost);
  }
  return absl::OkStatus();
}

absl::Status TorchProgram::ExecuteFast(uint32_t node, const NodeInput& input,
                                       std::vector<NodeResult>* results) const {
  const TorchCall& call = calls_[node];
  std::shared_ptr<const PackedMatrix> packed;
  if (call.packed.has_value()) {
    packed = OfferPacked(*call.packed, input, weights_.get());
  }
  Choices& choices = *call.choices;
  const MeasuredTurn turn =
      packed == nullptr ? choices.plain.Next() : choices.with_packed.Next();
  const size_t way = turn.way;
  const ThreadScope threads((way & Choices::kOneThread) != 0);
  const Stopwatch stopwatch(&clock_, turn.measured);
  // Whatever keeps the packed form from being used, the plain call does
  // without, and fails as it always did.
  if ((way & Choices::kPacked) == 0 ||
      !RunOwn(*call.packed, packed.get(), SumOrder(), input, results).ok()) {
    DJINN_RETURN_IF_ERROR(RunCall(call, input, results));
  } else if (input.way != nullptr) {
    *input.way = NodeWay::kPacked;
  }
  if (!turn.measured) return absl::OkStatus();
  const uint64_t cost = Choices::Cost(way, stopwatch.Nanoseconds());
  if (packed == nullptr) {
    choices.plain.Took(way, cost);
  } else {
    choices.with_packed.Took(way, cost);
  }
  return absl::OkStatus();
}

}  // namespace djinn::worker
