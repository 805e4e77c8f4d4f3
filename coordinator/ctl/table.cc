#include "coordinator/ctl/table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "coordinator/ctl/names.h"

namespace djinn::ctl {

std::string FormatDuration(const google::protobuf::Duration& duration) {
  return absl::StrFormat("%.1fs", static_cast<double>(duration.seconds()) +
                                      duration.nanos() * 1e-9);
}

std::string FormatShortDuration(const google::protobuf::Duration& duration) {
  const absl::Duration time =
      absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
  const absl::Duration unit = time < absl::Milliseconds(1)
                                  ? absl::Nanoseconds(100)
                              : time < absl::Seconds(1) ? absl::Microseconds(10)
                                                        : absl::Milliseconds(1);
  return absl::FormatDuration(absl::Trunc(time, unit));
}

std::string DeviceText(uint32_t virtual_device, uint32_t member) {
  return member == 0 ? absl::StrCat(virtual_device)
                     : absl::StrCat(virtual_device, ".", member);
}

std::string OrDash(std::string text) { return text.empty() ? "-" : text; }

std::string FormatTable(const std::vector<Row>& rows) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(row.size());
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      const bool last = i + 1 == row.size();
      absl::StrAppend(
          &text, row[i],
          last ? "\n" : std::string(widths[i] + 2 - row[i].size(), ' '));
    }
  }
  return text;
}

std::string FormatBytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 999.95 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  return unit == 0 ? absl::StrCat(bytes, "B")
                   : absl::StrFormat("%.1f%s", value, kUnits[unit]);
}

Row Header(const v1::WorkerInfo&) {
  return {"WORKER", "STATE",  "DEVICE", "FREE",     "MEMORY",
          "QUEUED", "GRAPHS", "LEASES", "SESSIONS", "CONTENTS",
          "BYTES",  "AGE",    "ADDRESS"};
}
Row Cells(const v1::WorkerInfo& info) {
  return {info.worker_id(),
          v1::WorkerInfo::State_Name(info.state()),
          info.device(),
          FormatBytes(info.free_bytes()),
          FormatBytes(info.memory_bytes()),
          absl::StrCat(info.queued_runs()),
          absl::StrCat(info.graph_count()),
          absl::StrCat(info.lease_count()),
          absl::StrCat(info.session_count()),
          absl::StrCat(info.content_count()),
          FormatBytes(info.content_bytes()),
          FormatDuration(info.report_age()),
          info.address()};
}

Row Header(const v1::SessionInfo&) {
  return {"SESSION", "TENANT",  "STATE",     "STRUCTURES", "STORAGES",
          "BYTES",   "CONTENT", "IN-FLIGHT", "LEASES",     "PROGRAM"};
}
Row Cells(const v1::SessionInfo& info) {
  return {info.session_id(),
          info.tenant(),
          v1::SessionInfo::State_Name(info.state()),
          absl::StrCat(info.structure_count()),
          absl::StrCat(info.storage_count()),
          FormatBytes(info.storage_bytes()),
          FormatBytes(info.use().contents().size_bytes()),
          absl::StrCat(info.use().queued_runs()),
          OrDash(absl::StrJoin(info.lease_ids(), ",")),
          OrDash(info.program())};
}

Row Header(const v1::TenantInfo&) {
  return {"TENANT",  "WEIGHT",  "SESSIONS",     "LEASES", "IN-FLIGHT",
          "STORAGE", "CONTENT", "MEMORY-LIMIT", "MODELS", "MODEL-BYTES"};
}
Row Cells(const v1::TenantInfo& info) {
  return {info.tenant(),
          absl::StrCat(info.weight()),
          absl::StrCat(info.session_count(), "/", info.max_sessions()),
          absl::StrCat(info.lease_count()),
          absl::StrCat(info.use().queued_runs()),
          FormatBytes(info.storage_bytes()),
          FormatBytes(info.content_bytes()),
          FormatBytes(info.limits().memory_bytes()),
          absl::StrCat(info.use().model_count()),
          FormatBytes(info.use().model_bytes())};
}

Row Header(const v1::LeaseInfo&) {
  return {"LEASE", "SESSION", "TENANT", "DEVICE", "WORKER",
          "STATE", "EPOCH",   "AGE",    "REASON"};
}
Row Cells(const v1::LeaseInfo& info) {
  return {info.lease_id(),
          info.session_id(),
          info.tenant(),
          DeviceText(info.virtual_device(), info.member()),
          info.worker_id(),
          v1::LeaseInfo::State_Name(info.state()),
          absl::StrCat(info.session_epoch()),
          FormatDuration(info.age()),
          OrDash(info.placement_reason())};
}

Row Header(const v1::GraphInfo&) {
  return {"FINGERPRINT", "NODES", "SLOTS",       "BYTES", "WORKLOAD",
          "PHASE",       "FLOP",  "DEFINITIONS", "RUNS",  "WORKERS"};
}
Row Cells(const v1::GraphInfo& info) {
  return {info.fingerprint().substr(0, 16),
          absl::StrCat(info.node_count()),
          absl::StrCat(info.slot_count()),
          FormatBytes(info.size_bytes()),
          Name(info.meaning().workload_class()),
          Name(info.meaning().phase()),
          FormatCount(info.meaning().cost().flops()),
          absl::StrCat(info.definition_count()),
          absl::StrCat(info.run_count()),
          OrDash(absl::StrJoin(info.worker_ids(), ","))};
}

Row Header(const v1::RunInfo&) {
  return {"RUN",    "WORKER",      "GRAPH",    "STATE",  "AGE",    "WAITED",
          "SERVED", "DEVICE-TIME", "GAVE-WAY", "SHARED", "HELD BY"};
}
Row Cells(const v1::RunInfo& info) {
  const v1::RunRecord& run = info.record();
  return {info.run(),
          info.worker_id(),
          OrDash(run.fingerprint().substr(0, 16)),
          v1::RunRecord::State_Name(run.state()),
          FormatDuration(run.age()),
          FormatShortDuration(run.waited()),
          run.has_served() ? FormatShortDuration(run.served()) : "-",
          FormatShortDuration(run.device_time()),
          absl::StrCat(run.gave_way_count()),
          absl::StrCat(run.shared_products()),
          OrDash(info.gate().reason())};
}

}  // namespace djinn::ctl
