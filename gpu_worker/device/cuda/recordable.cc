// Decides which plans can be recorded as graphs of the device.
#include <algorithm>
#include <iterator>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "gpu_worker/device/cuda/run_graph.h"

namespace djinn::worker {
namespace {

// Operators that are known to read values on the host. Recording also fails for
// operators that do so and are not listed here.
constexpr absl::string_view kWaiting[] = {
    "aten::nonzero",      "aten::nonzero_numpy",
    "aten::argwhere",     "aten::masked_select",
    "aten::unique_dim",   "aten::unique_consecutive",
    "aten::_unique",      "aten::_unique2",
    "aten::item",         "aten::_local_scalar_dense",
    "aten::is_nonzero",   "aten::equal",
    "aten::allclose",     "aten::repeat_interleave",
    "aten::bincount",     "aten::multinomial",
    "aten::ctc_loss",     "aten::_ctc_loss",
    "aten::histc",        "aten::tensor_split",
    "aten::combinations", "aten::isin"};

// Operators that pass a scalar tensor of the host to their kernels by value.
// Others may copy the scalar to the device, and a replay would copy from where
// the scalar lay during the recording.
constexpr absl::string_view kTakeNumbers[] = {
    "add", "sub",     "subtract",    "rsub",         "mul",       "multiply",
    "div", "divide",  "true_divide", "floor_divide", "remainder", "fmod",
    "pow", "maximum", "minimum",     "eq",           "ne",        "lt",
    "le",  "gt",      "ge",          "masked_fill"};

bool TakesNumbers(absl::string_view name) {
  absl::ConsumePrefix(&name, "aten::");
  absl::ConsumeSuffix(&name, "_");
  return std::find(std::begin(kTakeNumbers), std::end(kTakeNumbers), name) !=
         std::end(kTakeNumbers);
}

bool HasNumberOfTheHost(const TorchCall& call) {
  const auto is_one = [](const TensorSource& source) {
    return std::holds_alternative<srg::ScalarTensor>(source);
  };
  return std::any_of(
      call.call.places.begin(), call.call.places.end(),
      [&](const Place& place) {
        if (const auto* source = std::get_if<TensorSource>(&place.source)) {
          return is_one(*source);
        }
        const auto* list = std::get_if<TensorListSource>(&place.source);
        return list != nullptr &&
               std::any_of(list->entries.begin(), list->entries.end(), is_one);
      });
}

// Returns whether the node indexes by a mask, whose elements the host must
// count.
bool IndexesByMask(const srg::Node& node, absl::string_view name) {
  if (!absl::StrContains(name, "index")) return false;
  for (const srg::Argument& argument : node.arguments) {
    const auto* const list =
        std::get_if<std::vector<srg::TensorListEntry>>(&argument);
    if (list == nullptr) continue;
    for (const srg::TensorListEntry& entry : *list) {
      const auto* const view = std::get_if<srg::TensorView>(&entry);
      if (view != nullptr && (view->data_type == srg::DataType::kBool ||
                              view->data_type == srg::DataType::kUint8)) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

absl::string_view WhyNeverRecorded(const srg::Graph& srg_graph,
                                   absl::Span<const TorchCall> calls) {
  for (size_t i = 0; i < calls.size(); ++i) {
    const TorchCall& call = calls[i];
    const srg::Node& node = srg_graph.nodes[i];
    if (!call.call.unusable.ok()) return "unusable";
    if (call.implicit_generator_slot.has_value() &&
        !call.draws_unless_zero.has_value()) {
      return "random";
    }
    for (const Place& place : call.call.places) {
      if (std::holds_alternative<srg::GeneratorSlot>(place.source)) {
        return "random";
      }
    }
    const std::string& name = call.op.schema().name();
    if (!absl::StartsWith(name, "aten::")) return "custom";
    if (HasNumberOfTheHost(call) && !TakesNumbers(name)) return "host";
    if (std::find(std::begin(kWaiting), std::end(kWaiting), name) !=
            std::end(kWaiting) ||
        IndexesByMask(node, name)) {
      return "waits";
    }
    for (const srg::Result& result : node.results) {
      if (std::holds_alternative<srg::UnknownResult>(result)) return "waits";
    }
  }
  return "";
}

std::vector<uint32_t> HolesThatDraw(absl::Span<const TorchCall> calls) {
  std::vector<uint32_t> holes;
  for (const TorchCall& call : calls) {
    if (call.implicit_generator_slot.has_value() &&
        call.draws_unless_zero.has_value()) {
      holes.push_back(*call.draws_unless_zero);
    }
  }
  return holes;
}

}  // namespace djinn::worker
