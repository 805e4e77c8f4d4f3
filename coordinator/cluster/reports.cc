#include "coordinator/cluster/reports.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/plain_text.h"
#include "common/base/proto_duration.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "coordinator/tables/cluster_limits.h"
#include "coordinator/tables/errors.h"
#include "coordinator/tables/session_table.h"

namespace djinn::coordinator::reports {
namespace {

// Most recoveries that are kept of a session, as SessionInfo says.
constexpr size_t kMaxRecoveries = 8;
// Most bytes of a text that is kept. A report may bring more, up to
// kMaxReceivedText, and the rest is cut off.
constexpr size_t kMaxText = 1024;
constexpr size_t kMaxReceivedText = 4096;
// Most bytes of an answer about lineage, as LineageAnswer says.
constexpr size_t kMaxAnswer = size_t{48} << 10;
// The longest duration that is believed, so that no sum overflows.
constexpr absl::Duration kMaxDuration = absl::Hours(24);
// The largest counts that are believed, so that no sum overflows.
constexpr uint64_t kMaxCount = uint64_t{1} << 40;
constexpr uint64_t kMaxBytes = uint64_t{1} << 50;

template <typename Report>
absl::Status CheckDevice(const Report& report) {
  if (report.virtual_device() < kMaxVirtualDevices &&
      report.member() < kMaxMembers) {
    return absl::OkStatus();
  }
  return Violation(absl::StrCat("a report of member ", report.member(),
                                " of virtual device ",
                                report.virtual_device()));
}

absl::Status CheckError(const v1::ErrorDetail& error) {
  if (error.ByteSizeLong() <= kMaxReceivedText) return absl::OkStatus();
  return Violation(absl::StrCat("an error of ", error.ByteSizeLong(),
                                " bytes: at most ", kMaxReceivedText,
                                " are allowed"));
}

absl::Status CheckCount(absl::string_view what, uint64_t count, uint64_t most) {
  if (count <= most) return absl::OkStatus();
  return Violation(absl::StrCat(count, " ", what));
}

absl::Status Check(const v1::RecoveryReport& report) {
  DJINN_RETURN_IF_ERROR(CheckDevice(report));
  DJINN_RETURN_IF_ERROR(CheckError(report.cause()));
  DJINN_RETURN_IF_ERROR(CheckError(report.failure()));
  if (report.from_worker_id().size() > kMaxReceivedText ||
      report.to_worker_id().size() > kMaxReceivedText) {
    return Violation("a worker id that is too long");
  }
  DJINN_RETURN_IF_ERROR(
      CheckCount("restored values", report.restored_values(), kMaxCount));
  return CheckCount("replayed nodes", report.replayed_nodes(), kMaxCount);
}

// Returns the beginning of the text, without what a terminal would obey.
std::string Clean(absl::string_view text) {
  std::string clean(Cut(text, kMaxText));
  ReplaceControls(/*keep_lines=*/false, &clean);
  return clean;
}

// Returns the parts of an error that operators see.
v1::ErrorDetail Clean(const v1::ErrorDetail& error) {
  v1::ErrorDetail clean;
  clean.set_code(error.code());
  clean.set_reason(Clean(error.reason()));
  clean.set_message(Clean(error.message()));
  return clean;
}

google::protobuf::Duration Clamped(const google::protobuf::Duration& time) {
  return ToProtoDuration(
      std::clamp(FromProtoDuration(time), absl::ZeroDuration(), kMaxDuration));
}

// Returns the report with clean texts and believable times.
v1::RecoveryReport Clean(v1::RecoveryReport report) {
  report.set_from_worker_id(Clean(report.from_worker_id()));
  report.set_to_worker_id(Clean(report.to_worker_id()));
  if (report.has_cause()) *report.mutable_cause() = Clean(report.cause());
  if (report.has_failure()) *report.mutable_failure() = Clean(report.failure());
  *report.mutable_total_time() = Clamped(report.total_time());
  *report.mutable_lease_time() = Clamped(report.lease_time());
  *report.mutable_connect_time() = Clamped(report.connect_time());
  *report.mutable_send_time() = Clamped(report.send_time());
  *report.mutable_replay_time() = Clamped(report.replay_time());
  report.DiscardUnknownFields();
  return report;
}

// Returns the answer with clean texts.
v1::LineageAnswer Clean(v1::LineageAnswer answer) {
  for (v1::DeviceLineage& device : *answer.mutable_devices()) {
    device.set_mode(Clean(device.mode()));
    device.set_obstacle(Clean(device.obstacle()));
    for (v1::ValueLineage& value : *device.mutable_values()) {
      value.set_why(Clean(value.why()));
    }
    for (v1::LineageNode& node : *device.mutable_graph()) {
      node.set_text(Clean(node.text()));
    }
  }
  return answer;
}

// Returns the label of the kind, such as "worker_lost".
std::string KindOf(const v1::RecoveryReport& report) {
  switch (report.kind()) {
    case v1::RecoveryReport::WORKER_LOST:
    case v1::RecoveryReport::LOCAL_FALLBACK:
    case v1::RecoveryReport::FALLBACK_ENDED:
      return absl::AsciiStrToLower(
          v1::RecoveryReport::Kind_Name(report.kind()));
    default:
      return "unknown";
  }
}

}  // namespace

absl::Status NoteRecovery(ClusterState& state, const StreamId& id,
                          const v1::RecoveryReport& received) {
  DJINN_RETURN_IF_ERROR(Check(received));
  const v1::RecoveryReport report = Clean(received);
  MutexLock lock(&state.mu);
  DJINN_ASSIGN_OR_RETURN(Session* const session, state.FindOpenSession(id));
  const absl::Duration now = state.clock->Monotonic();
  if (!session->pace.reports.Take(now)) return absl::OkStatus();
  const bool failed = report.has_failure();
  ClusterMetrics& metrics = state.metrics;
  // A worker's own loss counts as "worker_lost"; this is a virtual device's.
  const std::string kind = report.kind() == v1::RecoveryReport::WORKER_LOST
                               ? "device_rebound"
                               : KindOf(report);
  metrics.recoveries.Add({kind, failed ? "failed" : "done"});
  metrics.replayed_nodes.Add({metrics.tenants.For(session->tenant)},
                             report.replayed_nodes());
  if (report.kind() == v1::RecoveryReport::WORKER_LOST && !failed) {
    metrics.rebound.total.Observe(FromProtoDuration(report.total_time()));
    metrics.rebound.lease.Observe(FromProtoDuration(report.lease_time()));
    metrics.rebound.connect.Observe(FromProtoDuration(report.connect_time()));
    metrics.rebound.send.Observe(FromProtoDuration(report.send_time()));
    metrics.rebound.replay.Observe(FromProtoDuration(report.replay_time()));
  }
  session->devices.recoveries.push_back({report, now});
  if (session->devices.recoveries.size() > kMaxRecoveries) {
    session->devices.recoveries.pop_front();
  }
  if (!session->MayLog(now)) return absl::OkStatus();
  log::Warning(failed ? "a client gave a virtual device up"
                      : "a client went on at another worker",
               {{"session", log::ShortId(session->id)},
                {"tenant", session->tenant},
                {"device", report.virtual_device()},
                {"kind", kind},
                {"from", report.from_worker_id()},
                {"to", report.to_worker_id()},
                {"cause", report.cause().reason()},
                {"failure", report.failure().reason()},
                {"attempts", report.attempts()},
                {"replayed", report.replayed_nodes()},
                {"restored", report.restored_values()},
                {"took", FromProtoDuration(report.total_time())},
                {"term", state.term}});
  return absl::OkStatus();
}

absl::Status NoteCheckpoint(ClusterState& state, const StreamId& id,
                            const v1::CheckpointReport& report) {
  DJINN_RETURN_IF_ERROR(CheckDevice(report));
  DJINN_RETURN_IF_ERROR(CheckError(report.failure()));
  DJINN_RETURN_IF_ERROR(CheckCount("bytes", report.bytes(), kMaxBytes));
  MutexLock lock(&state.mu);
  DJINN_ASSIGN_OR_RETURN(Session* const session, state.FindOpenSession(id));
  if (!session->pace.reports.Take(state.clock->Monotonic())) {
    return absl::OkStatus();
  }
  ClusterMetrics& metrics = state.metrics;
  const std::string tenant = metrics.tenants.For(session->tenant);
  metrics.checkpoints.Add({tenant, report.has_failure() ? "failed" : "done"});
  if (report.has_failure()) return absl::OkStatus();
  metrics.checkpoint_bytes.Add({tenant}, report.bytes());
  metrics.checkpoint_durations.Observe(
      FromProtoDuration(Clamped(report.took())));
  return absl::OkStatus();
}

absl::Status TakeLineage(ClusterState& state, const StreamId& id,
                         const v1::LineageAnswer& answer) {
  if (answer.ByteSizeLong() > kMaxAnswer) {
    return Violation(absl::StrCat("an answer of ", answer.ByteSizeLong(),
                                  " bytes: at most ", kMaxAnswer,
                                  " are allowed"));
  }
  const v1::LineageAnswer clean = Clean(answer);
  Wakes wakes;
  MutexLock lock(&state.mu);
  DJINN_ASSIGN_OR_RETURN(Session* const session, state.FindOpenSession(id));
  state.lineage_inquiries.Take(session->id, clean, &wakes);
  return absl::OkStatus();
}

}  // namespace djinn::coordinator::reports
