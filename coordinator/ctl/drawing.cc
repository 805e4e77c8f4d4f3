#include "coordinator/ctl/drawing.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/error.h"
#include "common/status_macros.h"
#include "coordinator/ctl/names.h"
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

// Every number that points somewhere points to what is there.
absl::Status Check(const v1::GraphInfo& info) {
  const v1::GraphMeaning& meaning = info.meaning();
  if (info.nodes_size() > kMaxDrawnNodes) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, "GRAPH_TOO_LARGE",
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

// Of the node's operands, those that stay from run to run.
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

// Inside a string in double quotes.
std::string DotText(absl::string_view text) {
  return absl::StrReplaceAll(text,
                             {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}});
}

std::string XmlText(absl::string_view text) {
  std::string escaped = absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
  // XML has no way to write the others.
  std::replace_if(
      escaped.begin(), escaped.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return escaped;
}

constexpr int kWidth = 190;
constexpr int kHeight = 52;
constexpr int kGapX = 20;
constexpr int kGapY = 44;
constexpr int kMargin = 40;

struct Place {
  int layer = 0;
  int column = 0;
  int x() const { return kMargin + column * (kWidth + kGapX); }
  int y() const { return 2 * kMargin + layer * (kHeight + kGapY); }
};

// Layers by the longest path from the top; nodes of a layer stand in order.
std::vector<Place> LayOut(const v1::GraphInfo& info) {
  std::vector<Place> places(static_cast<size_t>(info.nodes_size()));
  for (const v1::GraphEdge& edge : info.meaning().edges()) {
    places[edge.consumer()].layer = std::max(places[edge.consumer()].layer,
                                             places[edge.producer()].layer + 1);
  }
  std::vector<int> used;
  for (size_t i = 0; i < places.size(); ++i) {
    const auto layer = static_cast<size_t>(places[i].layer);
    if (layer >= used.size()) used.resize(layer + 1, 0);
    places[i].column = used[layer]++;
  }
  return places;
}

std::string SvgNode(const v1::GraphInfo& info, int node, const Place& place) {
  const v1::NodeMeaning& meaning = info.meaning().nodes(node);
  std::string lasting;
  for (const uint32_t slot : LastingSlots(info, node)) {
    const v1::SlotMeaning& what = info.meaning().slots(static_cast<int>(slot));
    absl::StrAppend(&lasting, "\n#", slot, " ", Name(what.residency()), " ",
                    FormatBytes(what.size_bytes()));
  }
  std::string svg = absl::StrFormat(
      "<g><title>%s</title><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
      "rx=\"4\" fill=\"%s\" stroke=\"#666666\"/>\n",
      XmlText(absl::StrCat("node ", node, ", ", Name(meaning.phase()), ", ",
                           Name(meaning.modality()), lasting)),
      place.x(), place.y(), kWidth, kHeight, Colour(meaning.phase()));
  const std::string lines[] = {
      absl::StrCat(node, " ", ShortOperator(info.nodes(node))).substr(0, 30),
      meaning.role().empty() ? std::string("-") : meaning.role(),
      CostLine(meaning.cost())};
  for (int i = 0; i < 3; ++i) {
    absl::StrAppendFormat(&svg, "<text x=\"%d\" y=\"%d\">%s</text>\n",
                          place.x() + 6, place.y() + 14 + 16 * i,
                          XmlText(lines[i]));
  }
  // A mark for each that stays.
  int x = place.x() + kWidth - 12;
  for (const uint32_t slot : LastingSlots(info, node)) {
    absl::StrAppendFormat(
        &svg,
        "<rect x=\"%d\" y=\"%d\" width=\"9\" height=\"9\" fill=\"%s\" "
        "stroke=\"#666666\"/>\n",
        x, place.y() + 3,
        Colour(info.meaning().slots(static_cast<int>(slot)).residency()));
    x -= 11;
    if (x < place.x()) break;
  }
  return svg + "</g>\n";
}

std::string SvgLegend(const v1::GraphInfo& info) {
  std::set<int> phases;
  for (const v1::NodeMeaning& node : info.meaning().nodes()) {
    phases.insert(node.phase());
  }
  std::string svg;
  int x = kMargin;
  const auto add = [&](const char* colour, const std::string& name) {
    absl::StrAppendFormat(
        &svg,
        "<rect x=\"%d\" y=\"40\" width=\"12\" height=\"12\" fill=\"%s\" "
        "stroke=\"#666666\"/><text x=\"%d\" y=\"50\">%s</text>\n",
        x, colour, x + 16, XmlText(name));
    x += 150;
  };
  for (const int phase : phases) {
    const auto value = static_cast<v1::Phase>(phase);
    add(Colour(value), phase == 0 ? "phase not known" : Name(value));
  }
  add(Colour(v1::RESIDENCY_PERSISTENT_WEIGHT), "persistent_weight");
  add(Colour(v1::RESIDENCY_STATEFUL_KV_CACHE), "stateful_kv_cache");
  return svg;
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

absl::StatusOr<std::string> ToSvg(const v1::GraphInfo& info) {
  DJINN_RETURN_IF_ERROR(Check(info));
  const std::vector<Place> places = LayOut(info);
  int width = 8 * 150, height = 0;
  for (const Place& place : places) {
    width = std::max(width, place.x() + kWidth + kMargin);
    height = std::max(height, place.y() + kHeight + kMargin);
  }
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n"
      "<text x=\"%d\" y=\"24\" font-size=\"14\">%s</text>\n",
      width, height, kMargin, XmlText(Title(info)));
  absl::StrAppend(&svg, SvgLegend(info));
  for (const v1::GraphEdge& edge : info.meaning().edges()) {
    const Place& from = places[edge.producer()];
    const Place& to = places[edge.consumer()];
    const int x1 = from.x() + kWidth / 2, y1 = from.y() + kHeight;
    const int x2 = to.x() + kWidth / 2, y2 = to.y();
    absl::StrAppendFormat(
        &svg,
        "<path d=\"M%d %d C%d %d %d %d %d %d\" fill=\"none\" "
        "stroke=\"#555555\" stroke-width=\"%.2f\"><title>%s</title></path>\n",
        x1, y1, x1, y1 + kGapY / 2, x2, y2 - kGapY / 2, x2, y2,
        0.5 + 2 * edge.criticality(),
        XmlText(absl::StrCat("#", edge.slot(), " ",
                             DescribeShape(edge.data_type(), edge.sizes()))));
  }
  for (int i = 0; i < info.nodes_size(); ++i) {
    absl::StrAppend(&svg, SvgNode(info, i, places[static_cast<size_t>(i)]));
  }
  return svg + "</svg>\n";
}

}  // namespace djinn::ctl
