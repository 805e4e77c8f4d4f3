#include "gpu_worker/device/torch/compiler/node_compiler.h"

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "ATen/core/dispatch/Dispatcher.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/torch/allow_list.h"
#include "common/torch/overwrite_table.h"
#include "common/torch/random_table.h"
#include "common/torch/schema_hash.h"
#include "gpu_worker/device/torch/guards/dimension_check.h"
#include "gpu_worker/device/torch/guards/named_arguments.h"
#include "gpu_worker/device/torch/guards/operand_guards.h"
#include "gpu_worker/device/torch/guards/work_limit.h"
#include "gpu_worker/device/torch/torch_error.h"

namespace djinn::worker {
namespace {

bool IsWritten(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// Explains why an operator that PyTorch lacks and no library registered is
// unknown.
std::string WhyUnknown(const srg::Operator& op, const CustomOperators& custom) {
  if (absl::StartsWith(op.name, "aten::")) return "";
  if (custom.libraries.empty()) {
    return ": the worker loads no operator libraries; list the library that "
           "registers it in the worker's operator_libraries";
  }
  return absl::StrCat(": none of the worker's operator libraries (",
                      absl::StrJoin(custom.libraries, ", "),
                      ") has it; list the library that registers it in the "
                      "worker's operator_libraries");
}

absl::StatusOr<c10::OperatorHandle> Resolve(const srg::Operator& op,
                                            const CustomOperators& custom) {
  const std::string name = op.FullName();
  const std::optional<c10::OperatorHandle> handle =
      c10::Dispatcher::singleton().findSchema(
          c10::OperatorName(op.name, op.overload));
  if (!handle.has_value()) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "OPERATOR_UNKNOWN",
                     absl::StrCat("operator ", name, " is unknown here",
                                  WhyUnknown(op, custom)),
                     {{"operator", name}});
  }
  DJINN_RETURN_IF_ERROR(custom.names.contains(name)
                            ? CheckCustom(handle->schema())
                            : CheckAllowed(handle->schema()));
  if (SchemaHash(handle->schema()) != op.schema_hash) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, "SCHEMA_MISMATCH",
        absl::StrCat("operator ", name, " differs from the client's: here ",
                     c10::toString(handle->schema())),
        {{"operator", name}});
  }
  return *handle;
}

// Checks one node against its operator's schema and makes it ready to run.
// Errors are plain texts; the caller adds the node and operator.
class NodeCompiler {
 public:
  NodeCompiler(const srg::Node& node, c10::OperatorHandle op,
               c10::Device device, absl::Duration longest)
      : node_(node),
        schema_(op.schema()),
        device_(device),
        longest_(longest),
        call_(op) {}

  absl::StatusOr<TorchCall> Compile() && {
    DJINN_ASSIGN_OR_RETURN(
        call_.call, BuildCallTemplate(schema_, node_.arguments, device_));
    if (call_.call.unusable.ok()) {
      call_.call.unusable = CheckDimensions(schema_, call_.call);
    }
    if (call_.call.unusable.ok()) {
      DJINN_RETURN_IF_ERROR(CheckOperands(schema_, call_.call));
      call_.call.unusable = CheckWork(schema_, node_, device_, longest_);
    }
    SortOperands();
    DJINN_RETURN_IF_ERROR(CheckWrites());
    DJINN_RETURN_IF_ERROR(CheckResults());
    DJINN_RETURN_IF_ERROR(CheckGenerator());
    call_.uninitialised =
        absl::StrContains(std::string(schema_.name()), "empty");
    FindUnusedResults();
    return std::move(call_);
  }

 private:
  void SortOperands() {
    for (const Place& place : call_.call.places) {
      if (const auto* source = std::get_if<TensorSource>(&place.source)) {
        SortOperand(place, *source);
      } else if (const auto* list =
                     std::get_if<TensorListSource>(&place.source)) {
        for (const TensorSource& entry : list->entries) {
          SortOperand(place, entry);
        }
      }
    }
    SortUnique(&call_.operand_slots);
    SortUnique(&writes_);
    SortUnique(&covered_);
    SortUnique(&read_);
  }

  void SortOperand(const Place& place, const TensorSource& source) {
    const auto* operand = std::get_if<Operand>(&source);
    if (operand == nullptr) return;
    const uint32_t slot = operand->view.slot;
    call_.operand_slots.push_back(slot);
    if (place.written) writes_.push_back(slot);
    if (Overwrites(schema_, place.argument)) {
      // The view is dense from the storage's start. Only a run knows whether
      // the storage ends where the view does.
      if (srg::CoversStorage(operand->view, operand->extent_bytes)) {
        covered_.push_back(slot);
      }
    } else {
      read_.push_back(slot);
    }
  }

  absl::Status CheckWrites() const {
    if (node_.writes != writes_) {
      return absl::InvalidArgumentError(
          absl::StrCat("writes [", absl::StrJoin(node_.writes, ","),
                       "], by the schema [", absl::StrJoin(writes_, ","), "]"));
    }
    // A client may claim fewer overwrites than the schema allows.
    for (const uint32_t slot : node_.overwrites) {
      if (!std::binary_search(covered_.begin(), covered_.end(), slot) ||
          std::binary_search(read_.begin(), read_.end(), slot)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "slot ", slot, " is not overwritten by the schema and the views"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckResults() {
    bool any_number = false;
    for (size_t i = 0; i < schema_.returns().size(); ++i) {
      const c10::Argument& result = schema_.returns()[i];
      if (IsWritten(result)) continue;
      call_.returns.push_back(static_cast<uint32_t>(i));
      any_number =
          any_number || result.real_type()->kind() == c10::TypeKind::ListType;
    }
    call_.result_count = node_.results.size();
    if (!any_number && call_.result_count != call_.returns.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(call_.result_count, " results, the schema has ",
                       call_.returns.size()));
    }
    return absl::OkStatus();
  }

  void FindUnusedResults() {
    const auto mask =
        NamedArguments(schema_, call_.call).Booleans("output_mask");
    if (!mask.has_value() || mask->size() != node_.results.size() ||
        mask->size() != call_.returns.size()) {
      return;
    }
    for (uint32_t i = 0; i < mask->size(); ++i) {
      if (!(*mask)[i] &&
          std::holds_alternative<srg::UndefinedResult>(node_.results[i])) {
        call_.unused_results.push_back(call_.returns[i]);
      }
    }
  }

  absl::Status CheckGenerator() {
    const bool implicit = DrawSourceOf(call_.op, call_.call.values) ==
                          DrawSource::kDefaultGenerator;
    if (implicit != node_.implicit_generator_slot.has_value()) {
      return absl::InvalidArgumentError(
          implicit ? "draws from a generator that is not named"
                   : "names an implicit generator but draws from none");
    }
    call_.implicit_generator_slot = node_.implicit_generator_slot;
    if (!implicit) return absl::OkStatus();
    // Attention draws random numbers only for its dropout. Other operators draw
    // even at probability 0.
    for (const Place& place : call_.call.places) {
      const auto* hole = std::get_if<srg::FloatHole>(&place.source);
      if (hole != nullptr &&
          schema_.arguments()[place.argument].name() == "dropout_p") {
        call_.draws_unless_zero = hole->index;
      }
    }
    return absl::OkStatus();
  }

  const srg::Node& node_;
  const c10::FunctionSchema& schema_;
  const c10::Device device_;
  const absl::Duration longest_;
  TorchCall call_;
  // Slots by what the call does to them, ascending, without duplicates.
  Slots writes_;
  Slots covered_;
  Slots read_;
};

}  // namespace

absl::StatusOr<std::vector<TorchCall>> CompileNodes(
    const srg::Graph& graph, const CustomOperators& custom, c10::Device device,
    absl::Duration longest) {
  std::vector<c10::OperatorHandle> operators;
  operators.reserve(graph.operators.size());
  for (const srg::Operator& op : graph.operators) {
    DJINN_ASSIGN_OR_RETURN(c10::OperatorHandle handle, Resolve(op, custom));
    operators.push_back(handle);
  }
  std::vector<TorchCall> calls;
  calls.reserve(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const srg::Node& node = graph.nodes[i];
    const absl::Status status = CatchTorch("MALFORMED_GRAPH", [&] {
      absl::StatusOr<TorchCall> call =
          NodeCompiler(node, operators[node.operator_index], device, longest)
              .Compile();
      if (call.ok()) calls.push_back(*std::move(call));
      return call.status();
    });
    if (!status.ok()) {
      return MakeError(
          absl::StatusCode::kInvalidArgument, "MALFORMED_GRAPH",
          absl::StrCat("node ", i, " (",
                       graph.operators[node.operator_index].FullName(),
                       "): ", status.message()));
    }
  }
  return calls;
}

}  // namespace djinn::worker
