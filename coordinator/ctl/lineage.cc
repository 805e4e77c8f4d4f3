#include "coordinator/ctl/lineage.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "coordinator/ctl/table.h"
#include "djinn/v1/recovery.pb.h"

namespace djinn::ctl {
namespace {

std::string Fate(v1::ValueLineage::Fate fate) {
  switch (fate) {
    case v1::ValueLineage::REPLAYED:
      return "computed again";
    case v1::ValueLineage::UPLOADED_AGAIN:
      return "uploaded again";
    case v1::ValueLineage::HELD_BY_HASH:
      return "asked for by hash";
    case v1::ValueLineage::RESTORED:
      return "from a checkpoint";
    case v1::ValueLineage::LOST:
      return "lost";
    case v1::ValueLineage::FAILED:
      return "fails";
    default:
      return "-";
  }
}

const char* Colour(const v1::LineageNode& node) {
  if (node.lost()) return "#f4cccc";
  return node.anchor() ? "#d9ead3" : "#cfe2f3";
}

// Escapes text for a string in double quotes.
std::string DotText(absl::string_view text) {
  return absl::StrReplaceAll(text,
                             {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}});
}

std::string Show(const v1::DeviceLineage& device) {
  std::string text = absl::StrCat(
      "\n", FormatTable({{"virtual device",
                          DeviceText(device.virtual_device(), device.member())},
                         {"recovery", device.mode()},
                         {"after a loss",
                          device.obstacle().empty()
                              ? "it goes on"
                              : absl::StrCat("it fails: ", device.obstacle())},
                         {"messages kept",
                          absl::StrCat(device.nodes(), ", ",
                                       FormatBytes(device.bytes()), " of ",
                                       FormatBytes(device.budget_bytes()))},
                         {"checkpoints", FormatBytes(device.anchored_bytes())},
                         {"live values", absl::StrCat(device.value_count(),
                                                      ", ", device.lost_count(),
                                                      " of them not kept")}}));
  if (device.values().empty()) return text;
  std::vector<Row> rows = {
      {"STORAGE", "VERSION", "SIZE", "AFTER A LOSS", "MESSAGES", "WHY"}};
  for (const v1::ValueLineage& value : device.values()) {
    rows.push_back(
        {absl::StrCat(value.storage()), absl::StrCat(value.version()),
         value.size_bytes() == 0 ? "-" : FormatBytes(value.size_bytes()),
         Fate(value.fate()),
         value.messages() == 0 ? "-" : absl::StrCat(value.messages()),
         OrDash(value.why())});
  }
  absl::StrAppend(&text, FormatTable(rows));
  return text;
}

}  // namespace

absl::StatusOr<v1::GetLineageRequest> ParseLineage(absl::string_view kind,
                                                   absl::string_view name) {
  v1::GetLineageRequest request;
  const size_t slash = name.find('/');
  request.set_session_id(std::string(name.substr(0, slash)));
  if (kind == "session") {
    if (slash == absl::string_view::npos) return request;
    return absl::InvalidArgumentError(
        absl::StrCat("\"", name, "\" is no session"));
  }
  uint64_t storage = 0;
  if (slash == absl::string_view::npos || slash == 0 ||
      !absl::SimpleAtoi(name.substr(slash + 1), &storage) || storage == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", name,
                     "\" is no storage: SESSION/NUMBER, with a "
                     "number that `lineage session` shows"));
  }
  request.set_storage(storage);
  return request;
}

std::string ShowLineage(const v1::SessionLineage& lineage) {
  std::string text = FormatTable(
      {{"session", lineage.session_id()}, {"tenant", lineage.tenant()}});
  for (const v1::DeviceLineage& device : lineage.devices()) {
    absl::StrAppend(&text, Show(device));
  }
  if (lineage.devices().empty()) {
    absl::StrAppend(&text, "it has used no virtual device\n");
  }
  return text;
}

std::string LineageToDot(const v1::SessionLineage& lineage) {
  std::string dot = absl::StrCat(
      "digraph lineage {\n  label=\"session ", DotText(lineage.session_id()),
      "\";\n  node [shape=box, style=filled, fontname=\"sans-serif\"];\n");
  for (int i = 0; i < lineage.devices_size(); ++i) {
    const v1::DeviceLineage& device = lineage.devices(i);
    for (const v1::LineageNode& node : device.graph()) {
      const std::string name = absl::StrCat("d", i, "n", node.number());
      absl::StrAppend(&dot, "  ", name, " [label=\"", DotText(node.text()),
                      "\", fillcolor=\"", Colour(node), "\"];\n");
      for (const uint32_t operand : node.operands()) {
        absl::StrAppend(&dot, "  d", i, "n", operand, " -> ", name, ";\n");
      }
    }
    for (const v1::ValueLineage& value : device.values()) {
      const std::string name = absl::StrCat("d", i, "s", value.storage());
      absl::StrAppend(&dot, "  ", name, " [shape=ellipse, fillcolor=white, ",
                      "label=\"#", value.storage(), " version ",
                      value.version(), "\\n", FormatBytes(value.size_bytes()),
                      "\\n", Fate(value.fate()), "\"];\n");
      if (value.node() == 0) continue;
      absl::StrAppend(&dot, "  d", i, "n", value.node(), " -> ", name,
                      " [style=dashed];\n");
    }
  }
  return dot + "}\n";
}

std::string DescribeRecovery(const v1::RecoveryInfo& recovery) {
  const v1::RecoveryReport& report = recovery.report();
  std::string text = absl::StrCat(
      FormatDuration(recovery.age()), " ago, ",
      absl::StrReplaceAll(
          absl::AsciiStrToLower(v1::RecoveryReport::Kind_Name(report.kind())),
          {{"_", " "}}),
      ", from ", OrDash(report.from_worker_id()), " to ",
      OrDash(report.to_worker_id()));
  if (report.has_cause()) {
    absl::StrAppend(&text, ", because ",
                    report.cause().reason().empty()
                        ? ""
                        : absl::StrCat(report.cause().reason(), ": "),
                    report.cause().message());
  }
  if (report.has_failure()) {
    return absl::StrCat(text, "; it failed after ",
                        FormatShortDuration(report.total_time()), ": ",
                        report.failure().message());
  }
  return absl::StrCat(
      text, "; ", report.replayed_nodes(), " messages again, ",
      report.restored_values(), " values from checkpoints, ", report.attempts(),
      report.attempts() == 1 ? " attempt" : " attempts", ", in ",
      FormatShortDuration(report.total_time()), " (lease ",
      FormatShortDuration(report.lease_time()), ", connect ",
      FormatShortDuration(report.connect_time()), ", send ",
      FormatShortDuration(report.send_time()), ", replay ",
      FormatShortDuration(report.replay_time()), ")");
}

}  // namespace djinn::ctl
