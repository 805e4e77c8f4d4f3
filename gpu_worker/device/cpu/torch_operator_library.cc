#include "gpu_worker/device/cpu/torch_operator_library.h"

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "absl/strings/match.h"
#include "common/status_macros.h"
#include "gpu_worker/device/cpu/cpu_target.h"
#include "gpu_worker/device/cpu/generator_state.h"
#include "gpu_worker/device/cpu/made_up.h"
#include "gpu_worker/device/cpu/thread_scope.h"
#include "gpu_worker/device/cpu/torch_program.h"
#include "gpu_worker/device/torch/call_template.h"
#include "gpu_worker/device/torch/node_compiler.h"
#include "gpu_worker/device/torch/slots.h"
#include "gpu_worker/device/torch/torch_error.h"

namespace djinn::worker {
namespace {

// PyTorch's own operators have no effect but what they return and write.
bool MayBeCarriedOutTwice(const TorchCall& call) {
  if (call.uninitialised || call.implicit_generator_slot.has_value()) {
    return false;
  }
  for (const Place& place : call.call.places) {
    if (std::holds_alternative<srg::GeneratorSlot>(place.source)) return false;
  }
  return absl::StartsWith(call.op.schema().name(), "aten::");
}

// Operators that PyTorch divides among threads however little there is to do,
// whose results are products of single elements or zero: nothing depends on who
// makes them, and such results would tell a trial nothing.
bool HasNoSums(const c10::FunctionSchema& schema) {
  return schema.overload_name().empty() &&
         (schema.name() == "aten::nll_loss_backward" ||
          schema.name() == "aten::nll_loss2d_backward");
}

// Calls `visit(const srg::TensorView&, bool written)` for each tensor operand.
template <typename Visitor>
void ForEachOperand(const CallTemplate& call, Visitor visit) {
  for (const Place& place : call.places) {
    const auto visit_source = [&](const TensorSource& source) {
      if (const auto* const operand = std::get_if<Operand>(&source)) {
        visit(operand->view, place.written);
      }
    };
    if (const auto* const source = std::get_if<TensorSource>(&place.source)) {
      visit_source(*source);
    } else if (const auto* const list =
                   std::get_if<TensorListSource>(&place.source)) {
      for (const TensorSource& entry : list->entries) visit_source(entry);
    }
  }
}

Slots WrittenSlots(const CallTemplate& call) {
  Slots slots;
  ForEachOperand(call, [&](const srg::TensorView& view, bool written) {
    if (written) slots.push_back(view.slot);
  });
  SortUnique(&slots);
  return slots;
}

// What may matter for how threads share the call out.
std::string DescribeExactly(const TorchCall& call) {
  std::ostringstream text;
  text << call.op.schema().name() << "." << call.op.schema().overload_name();
  ForEachOperand(call.call, [&](const srg::TensorView& view, bool written) {
    text << " " << view.slot << (written ? "w" : "r")
         << srg::DescribeView(view);
  });
  for (const c10::IValue& value : call.call.values) {
    if (!value.isNone() && !value.isTensor()) text << " " << value;
  }
  return text.str();
}

// Of a call whose operands can all be made up; nothing otherwise.
std::optional<std::vector<TypedSlot>> OperandsToMakeUp(
    const CallTemplate& call) {
  std::vector<TypedSlot> operands;
  bool can = true;
  ForEachOperand(call, [&](const srg::TensorView& view, bool) {
    can = can && CanMakeUp(view.data_type);
    const auto same = std::find_if(
        operands.begin(), operands.end(),
        [&](const TypedSlot& other) { return other.slot == view.slot; });
    if (same == operands.end()) {
      operands.push_back({view.slot, view.data_type});
    } else {
      can = can && same->type == view.data_type;
    }
  });
  if (!can) return std::nullopt;
  return operands;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CompiledProgram>> TorchOperatorLibrary::Compile(
    const srg::Structure& structure) {
  DJINN_ASSIGN_OR_RETURN(
      std::vector<TorchCall> plain,
      CompileNodes(structure, custom_, CpuTarget().device()));
  CountThreads();
  std::vector<std::optional<AttentionStep>> steps(plain.size());
  if (tiers_.whole_attention) steps = AttentionStep::Match(structure, plain);
  std::vector<CpuCall> calls;
  calls.reserve(plain.size());
  for (size_t node = 0; node < plain.size(); ++node) {
    calls.emplace_back(std::move(plain[node]));
    calls.back().attention = std::move(steps[node]);
  }
  for (CpuCall& call : calls) {
    call.choices = choices_.Find(call.op.schema(), call.call);
    call.blocks = BlocksTakenBy(call.op.schema());
    if (rooms_->enabled()) {
      call.append = CacheAppend::Match(call.op.schema(), call.call);
    }
    std::optional<PackedCall> product =
        PackedCall::Match(call.op.schema(), call.call);
    if (product.has_value() && JoinedProducts::Gains(*product)) {
      call.joinable = product;
    }
    if (weights_->enabled()) call.packed = std::move(product);
    if (call.packed.has_value() && tiers_.strict_products) {
      call.strict_product = products_.Find(call.op.schema(), call.call);
    } else if (!tiers_.thread_trials) {
      continue;
    } else if (HasNoSums(call.op.schema())) {
      call.alone = std::make_unique<AloneTrial>();
      call.alone->LeaveToOne();
    } else if (at::get_num_threads() > 1 && MayBeCarriedOutTwice(call)) {
      std::optional<std::vector<TypedSlot>> operands =
          OperandsToMakeUp(call.call);
      if (!operands.has_value()) continue;
      if (tiers_.strict_products) {
        call.parted = PartedProduct::Match(call.op.schema(), call.call,
                                           at::get_num_threads());
      }
      const size_t parted_ways =
          call.parted.has_value() ? call.parted->ways() : 0;
      call.alone =
          std::make_unique<AloneTrial>(static_cast<uint32_t>(1 + parted_ways));
      if (learnt_ != nullptr) StartFromLearnt(&call);
      call.operands = *std::move(operands);
      call.written_slots = WrittenSlots(call.call);
    }
  }
  return std::make_unique<TorchProgram>(std::move(calls), CpuTarget(), weights_,
                                        rooms_, pace_, learnt_, tiers_,
                                        &clock_);
}

void TorchOperatorLibrary::StartFromLearnt(CpuCall* call) {
  call->alone_name =
      LearntFacts::NameOf(LearntFacts::Kind::kThreads, DescribeExactly(*call));
  const std::optional<LearntFacts::Numbers> known =
      learnt_->Find(call->alone_name);
  if (!known.has_value() || known->size() != 2 || (*known)[1] < 0) return;
  call->alone->Start((*known)[0] != 0, static_cast<uint32_t>((*known)[1]));
}

void TorchOperatorLibrary::ExecuteJoined(absl::Span<JoinedCall> calls) {
  std::vector<JoinedProducts::Part> parts;
  parts.reserve(calls.size());
  for (JoinedCall& call : calls) {
    const auto& program = static_cast<const TorchProgram&>(*call.program);
    parts.push_back({&*program.call(call.node).joinable, &call});
  }
  joined_.Execute(parts);
}

absl::StatusOr<uint64_t> TorchOperatorLibrary::GeneratorBytes() {
  uint64_t bytes = 0;
  DJINN_RETURN_IF_ERROR(CatchTorch("INVALID_GENERATOR", [&] {
    bytes = GeneratorStateBytes();
    return absl::OkStatus();
  }));
  return bytes;
}

absl::StatusOr<std::shared_ptr<Buffer>> TorchOperatorLibrary::SeedGenerator(
    uint64_t seed) {
  std::shared_ptr<Buffer> state;
  DJINN_RETURN_IF_ERROR(CatchTorch("INVALID_GENERATOR", [&] {
    state = SeededState(seed);
    return absl::OkStatus();
  }));
  return state;
}

absl::Status TorchOperatorLibrary::CheckGenerator(absl::string_view state) {
  return CheckGeneratorState(state);
}

}  // namespace djinn::worker
