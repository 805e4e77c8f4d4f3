#include "coordinator/ctl/drawing.h"

#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "coordinator/ctl/table.h"

namespace djinn::ctl {
namespace {

const char* Colour(v1::Phase phase) {
  switch (phase) {
    case v1::PHASE_FORWARD:
      return "#cfe2f3";
    case v1::PHASE_LLM_PREFILL:
      return "#d9ead3";
    case v1::PHASE_LLM_DECODE:
      return "#fff2cc";
    case v1::PHASE_VISION_ENCODING:
      return "#d9d2e9";
    case v1::PHASE_VISION_DECODING:
      return "#ead1dc";
    case v1::PHASE_MULTIMODAL_FUSION:
      return "#fce5cd";
    case v1::PHASE_TRAINING:
      return "#f4cccc";
    default:
      return "#eeeeee";
  }
}

const char* Colour(v1::Residency residency) {
  switch (residency) {
    case v1::RESIDENCY_PERSISTENT_WEIGHT:
      return "#9fc5e8";
    case v1::RESIDENCY_STATEFUL_KV_CACHE:
      return "#ffd966";
    case v1::RESIDENCY_GRADIENT:
      return "#e06666";
    default:
      return "#ffffff";
  }
}

// Checks that every index is in range.
absl::Status Check(const v1::GraphInfo& info) {
  const v1::GraphMeaning& meaning = info.meaning();
  if (info.nodes_size() > kMaxDrawnNodes) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, "DRAWING_TOO_LARGE",
        absl::StrCat("the graph has ", info.nodes_size(), " nodes, a picture ",
                     kMaxDrawnNodes, " at most; -o table or -o json shows it"));
  }
  bool fits = meaning.nodes_size() == info.nodes_size();
  const auto nodes = static_cast<uint32_t>(info.nodes_size());
  for (const v1::GraphEdge& edge : meaning.edges()) {
    fits &= edge.producer() < edge.consumer() && edge.consumer() < nodes;
  }
  for (const v1::GraphNode& node : info.nodes()) {
    for (const v1::GraphTensor& tensor : node.operands()) {
      fits &= tensor.slot() < static_cast<uint32_t>(meaning.slots_size());
    }
  }
  if (fits) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInternal, "GRAPH_MALFORMED",
                   "the coordinator's answer does not fit together");
}

std::string ShortOperator(const v1::GraphNode& node) {
  return std::string(absl::StripPrefix(node.operator_name(), "aten::"));
}

std::string CostLine(const v1::Cost& cost) {
  return absl::StrCat(FormatCount(cost.flops()), " flop, ",
                      FormatBytes(cost.read_bytes() + cost.written_bytes()));
}

std::string Title(const v1::GraphInfo& info) {
  const v1::GraphMeaning& meaning = info.meaning();
  return absl::StrCat(info.fingerprint().substr(0, 12), ": ",
                      Name(meaning.workload_class()), ", ",
                      Name(meaning.phase()), ", ", CostLine(meaning.cost()),
                      ", weights ", FormatBytes(meaning.weight_bytes()),
                      ", kv cache ", FormatBytes(meaning.kv_cache_bytes()));
}

// Returns the node's operands that stay from run to run.
std::vector<uint32_t> LastingSlots(const v1::GraphInfo& info, int node) {
  std::set<uint32_t> slots;
  for (const v1::GraphTensor& tensor : info.nodes(node).operands()) {
    const v1::Residency residency =
        info.meaning().slots(static_cast<int>(tensor.slot())).residency();
    if (residency == v1::RESIDENCY_PERSISTENT_WEIGHT ||
        residency == v1::RESIDENCY_STATEFUL_KV_CACHE) {
      slots.insert(tensor.slot());
    }
  }
  return {slots.begin(), slots.end()};
}

// Escapes text for a string in double quotes.
std::string DotText(absl::string_view text) {
  return absl::StrReplaceAll(text,
                             {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}});
}

}  // namespace

absl::StatusOr<std::string> ToDot(const v1::GraphInfo& info) {
  DJINN_RETURN_IF_ERROR(Check(info));
  const v1::GraphMeaning& meaning = info.meaning();
  std::string dot = absl::StrCat(
      "digraph srg {\n  label=\"", DotText(Title(info)),
      "\";\n  node [shape=box, style=filled, fontname=\"sans-serif\"];\n");
  std::set<uint32_t> lasting;
  for (int i = 0; i < info.nodes_size(); ++i) {
    const v1::NodeMeaning& node = meaning.nodes(i);
    absl::StrAppend(
        &dot, "  n", i, " [label=\"",
        DotText(absl::StrCat(i, " ", ShortOperator(info.nodes(i)), "\n",
                             node.role(), "\n", CostLine(node.cost()))),
        "\", fillcolor=\"", Colour(node.phase()), "\", tooltip=\"",
        DotText(Name(node.phase())), "\"];\n");
    for (const uint32_t slot : LastingSlots(info, i)) {
      absl::StrAppend(&dot, "  s", slot, " -> n", i, " [style=dashed];\n");
      lasting.insert(slot);
    }
  }
  for (const uint32_t slot : lasting) {
    const v1::SlotMeaning& what = meaning.slots(static_cast<int>(slot));
    absl::StrAppend(&dot, "  s", slot, " [shape=ellipse, label=\"#", slot, " ",
                    DotText(Name(what.residency())), "\\n",
                    FormatBytes(what.size_bytes()), "\", fillcolor=\"",
                    Colour(what.residency()), "\"];\n");
  }
  for (const v1::GraphEdge& edge : meaning.edges()) {
    absl::StrAppendFormat(
        &dot, "  n%d -> n%d [label=\"%s\", penwidth=%.2f];\n", edge.producer(),
        edge.consumer(), DotText(DescribeShape(edge.data_type(), edge.sizes())),
        0.5 + 2 * edge.criticality());
  }
  return dot + "}\n";
}

}  // namespace djinn::ctl
