#include "coordinator/ctl/table.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/base/plain_text.h"

namespace djinn::ctl {
namespace {

std::string Shorten(int number, const std::string& name,
                    absl::string_view prefix) {
  if (number == 0) return "-";
  if (name.empty()) return absl::StrCat(number);  // no value of the enumeration
  return absl::AsciiStrToLower(absl::StripPrefix(name, prefix));
}

bool GpuFails(const v1::WorkerInfo& info) {
  return info.state() == v1::WorkerInfo::ACTIVE &&
         !info.gpu_health().failure().empty();
}

std::string NewLeases(const v1::WorkerInfo& info) {
  return info.draining()           ? "drained"
         : info.cordoned()         ? "cordoned"
         : GpuFails(info)          ? "gpu fails"
         : info.unreached_by_all() ? "not reached"
                                   : "yes";
}

// Returns whether operators set any of the tenant's quotas.
std::string QuotaState(const v1::TenantInfo& info) {
  for (const v1::ResourceQuota& quota : info.quotas()) {
    if (quota.has_override()) return "set";
  }
  return info.quotas().empty() ? "-" : "configured";
}

}  // namespace

std::string Name(v1::Phase phase) {
  return Shorten(phase, v1::Phase_Name(phase), "PHASE_");
}
std::string Name(v1::Modality modality) {
  return Shorten(modality, v1::Modality_Name(modality), "MODALITY_");
}
std::string Name(v1::Residency residency) {
  return Shorten(residency, v1::Residency_Name(residency), "RESIDENCY_");
}
std::string Name(v1::WorkloadClass workload_class) {
  return Shorten(workload_class, v1::WorkloadClass_Name(workload_class),
                 "WORKLOAD_CLASS_");
}
std::string Name(v1::TaskType task_type) {
  return Shorten(task_type, v1::TaskType_Name(task_type), "TASK_TYPE_");
}

std::string DescribeShape(
    v1::DataType data_type,
    const google::protobuf::RepeatedField<int64_t>& sizes) {
  return absl::StrCat(
      Shorten(data_type, v1::DataType_Name(data_type), "DATA_TYPE_"), "[",
      absl::StrJoin(sizes, ","), "]");
}

std::string FormatCount(uint64_t count) {
  if (count < 1000) return absl::StrCat(count);
  double value = static_cast<double>(count);
  const char* unit = "";
  for (const char* const next : {"k", "M", "G", "T", "P", "E"}) {
    if (value < 1000) break;
    value /= 1000;
    unit = next;
  }
  return absl::StrFormat("%.3g%s", value, unit);
}

std::string FormatDuration(const google::protobuf::Duration& duration) {
  return absl::StrFormat("%.1fs", static_cast<double>(duration.seconds()) +
                                      duration.nanos() * 1e-9);
}

std::string FormatTime(const google::protobuf::Timestamp& time) {
  return absl::FormatTime(absl::RFC3339_sec,
                          absl::FromUnixSeconds(time.seconds()),
                          absl::UTCTimeZone());
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

std::string FormatTable(std::vector<Row> rows) {
  for (Row& row : rows) {
    for (std::string& cell : row) ReplaceControls(/*keep_lines=*/false, &cell);
  }
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

std::string DescribeGpu(const v1::GpuHealth& gpu) {
  std::vector<std::string> parts;
  if (!gpu.failure().empty()) parts.push_back("fails: " + gpu.failure());
  if (gpu.has_temperature_celsius()) {
    parts.push_back(absl::StrCat(gpu.temperature_celsius(), " C"));
  }
  if (gpu.has_uncorrected_ecc_errors()) {
    parts.push_back(
        absl::StrCat(gpu.uncorrected_ecc_errors(), " uncorrected ECC errors"));
  }
  if (gpu.xid_count() > 0) {
    parts.push_back(
        absl::StrCat(gpu.xid_count(), " Xids, the last ", gpu.last_xid()));
  }
  parts.push_back(gpu.source());
  return absl::StrJoin(parts, "; ");
}

Row Header(const v1::WorkerInfo&) {
  return {"WORKER", "STATE",  "DEVICE", "FREE",     "MEMORY",
          "QUEUED", "GRAPHS", "LEASES", "SESSIONS", "CONTENTS",
          "BYTES",  "AGE",    "ADDRESS"};
}
Row Cells(const v1::WorkerInfo& info) {
  return {
      info.worker_id(),
      GpuFails(info) ? "GPU-FAILS" : v1::WorkerInfo::State_Name(info.state()),
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
  return {"SESSION", "TENANT",  "STATE",     "GRAPHS", "STORAGES",
          "BYTES",   "CONTENT", "IN-FLIGHT", "LEASES", "PROGRAM"};
}
Row Cells(const v1::SessionInfo& info) {
  return {info.session_id(),
          info.tenant(),
          v1::SessionInfo::State_Name(info.state()),
          absl::StrCat(info.graph_count()),
          absl::StrCat(info.storage_count()),
          FormatBytes(info.storage_bytes()),
          FormatBytes(info.use().contents().size_bytes()),
          absl::StrCat(info.use().queued_runs()),
          OrDash(absl::StrJoin(info.lease_ids(), ",")),
          OrDash(info.program())};
}

Row Header(const v1::TenantInfo&) {
  return {"TENANT",       "WEIGHT",    "QUEUE",   "SESSIONS",
          "LEASES",       "IN-FLIGHT", "STORAGE", "CONTENT",
          "MEMORY-LIMIT", "QUOTA",     "MODELS",  "MODEL-BYTES"};
}
Row Cells(const v1::TenantInfo& info) {
  return {info.tenant(),
          absl::StrCat(info.weight()),
          QueueState(info.has_queue_stop(), info.queue_stop()),
          absl::StrCat(info.session_count(), "/", info.max_sessions()),
          absl::StrCat(info.lease_count()),
          absl::StrCat(info.use().queued_runs()),
          FormatBytes(info.storage_bytes()),
          FormatBytes(info.content_bytes()),
          FormatBytes(info.limits().memory_bytes()),
          QuotaState(info),
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

std::string QueueState(bool stopped, const v1::QueueStop& stop) {
  if (!stopped) return "active";
  return stop.drain() ? "drained" : "stopped";
}

std::string DescribeWaiting(const v1::QueueInfo& info) {
  return OrDash(absl::StrJoin(
      info.waiting(), ", ", [](std::string* out, const v1::WaitingFor& what) {
        absl::StrAppend(out, what.count(), " ",
                        OrDash(std::string(what.reason())));
      }));
}

Row Header(const v1::QueueInfo&) {
  return {"TENANT", "STATE",  "WAITING", "OLDEST",     "PLACE",
          "LEASES", "WEIGHT", "FAIR",    "DEVICE-TIME"};
}
Row Cells(const v1::QueueInfo& info) {
  const v1::TenantStanding& standing = info.standing();
  return {info.tenant(),
          QueueState(info.has_stop(), info.stop()),
          absl::StrCat(standing.waiting_count()),
          info.has_oldest_wait() ? FormatDuration(info.oldest_wait()) : "-",
          info.first_place() == 0
              ? "-"
              : absl::StrCat(info.first_place(), "/", info.line_length()),
          absl::StrCat(standing.lease_count()),
          absl::StrCat(standing.weight()),
          absl::StrFormat("%.1f%%", 100 * standing.fair_share()),
          absl::StrFormat("%.1f%%", 100 * standing.device_time_share())};
}

Row WideHeader(const v1::WorkerInfo&) {
  return {"NEW-LEASES", "BUSY",   "PRICE", "CAPABILITIES",
          "CONNECTION", "FAILED", "GPU"};
}
Row WideCells(const v1::WorkerInfo& info) {
  return {NewLeases(info),
          absl::StrFormat("%.0f%%", 100 * info.busy_share()),
          absl::StrCat(info.price_per_hour()),
          OrDash(absl::StrJoin(info.capabilities(), ",")),
          info.shared_memory_socket().empty() ? "grpc" : "grpc,shared-memory",
          absl::StrCat(info.executed().failed_nodes()),
          info.has_gpu_health() ? DescribeGpu(info.gpu_health()) : "-"};
}

Row WideHeader(const v1::SessionInfo&) {
  return {"EPOCH", "PENDING", "POLICY", "MODELS", "OPENED"};
}
Row WideCells(const v1::SessionInfo& info) {
  return {absl::StrCat(info.session_epoch()),
          OrDash(absl::StrJoin(info.pending_virtual_devices(), ",")),
          OrDash(info.placement_policy()),
          absl::StrCat(info.use().model_count()), FormatTime(info.open_time())};
}

Row WideHeader(const v1::TenantInfo&) {
  return {"COHORT", "BORROWS", "POLICY", "REQUIRED", "DEVICE-TIME"};
}
Row WideCells(const v1::TenantInfo& info) {
  return {OrDash(info.cohort()), absl::StrFormat("%.3g", info.weighted_share()),
          OrDash(info.placement_policy()),
          OrDash(absl::StrJoin(info.required_capabilities(), ",")),
          FormatDuration(info.credits().used().device_time())};
}

Row WideHeader(const v1::LeaseInfo&) {
  return {"DEVICE-TIME", "MOVED", "IN-FLIGHT", "CREDIT"};
}
Row WideCells(const v1::LeaseInfo& info) {
  return {FormatDuration(info.lease_use().device_time()),
          FormatBytes(info.lease_use().bytes()),
          absl::StrCat(info.use().queued_runs()),
          info.out_of_credit() ? "none" : "yes"};
}

Row WideHeader(const v1::GraphInfo&) {
  return {"TASK", "WEIGHTS", "KV-CACHES", "PEAK"};
}
Row WideCells(const v1::GraphInfo& info) {
  return {Name(info.meaning().task_type()),
          FormatBytes(info.meaning().weight_bytes()),
          FormatBytes(info.meaning().kv_cache_bytes()),
          FormatBytes(info.meaning().peak_bytes())};
}

Row WideHeader(const v1::QueueInfo&) {
  return {"SESSIONS", "COHORT", "BORROWS", "SINCE", "FOR"};
}
Row WideCells(const v1::QueueInfo& info) {
  return {absl::StrCat(info.standing().session_count()), OrDash(info.cohort()),
          absl::StrFormat("%.3g", info.weighted_share()),
          info.has_stop() ? FormatTime(info.stop().stop_time()) : "-",
          DescribeWaiting(info)};
}

Row Header(const v1::RunInfo&) {
  return {"RUN",    "WORKER",      "GRAPH",   "STATE",  "AGE",    "WAITED",
          "SERVED", "DEVICE-TIME", "YIELDED", "SHARED", "HELD BY"};
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
          absl::StrCat(run.yield_count()),
          absl::StrCat(run.shared_products()),
          OrDash(info.gate().reason())};
}

}  // namespace djinn::ctl
