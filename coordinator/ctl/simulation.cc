#include "coordinator/ctl/simulation.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "coordinator/ctl/table.h"
#include "scheduler/placement/policy.h"
#include "scheduler/simulator/simulator.h"

namespace djinn::ctl {
namespace {

using scheduler::ClassResult;
using scheduler::JobClass;
using scheduler::SimulationResult;
using scheduler::TenantResult;

Row Cells(const std::string& policy, const SimulationResult& result) {
  const auto seconds = [](double value) {
    return absl::StrFormat("%.3fs", value);
  };
  return {policy,
          absl::StrCat(result.finished),
          absl::StrCat(result.refused),
          seconds(result.mean_latency_seconds),
          seconds(result.p99_latency_seconds),
          seconds(result.interactive_p99_seconds),
          seconds(result.makespan_seconds),
          seconds(result.busy_seconds),
          absl::StrFormat("%.4g", result.cost),
          absl::StrFormat("%.3f", result.imbalance),
          FormatBytes(result.moved_bytes),
          absl::StrCat(result.preemptions)};
}

// Of those with a deadline; "-" without any.
std::string InTime(const ClassResult& result) {
  if (result.deadlines == 0) return "-";
  return absl::StrFormat("%.1f%%", 100.0 *
                                       static_cast<double>(result.attained) /
                                       static_cast<double>(result.deadlines));
}

Row ClassCells(const std::string& policy, JobClass job_class,
               const ClassResult& result) {
  return {policy,
          std::string(scheduler::JobClassName(job_class)),
          absl::StrCat(result.jobs),
          absl::StrCat(result.finished),
          absl::StrCat(result.unplaced),
          absl::StrCat(result.late),
          absl::StrFormat("%.3fs", result.p50_latency_seconds),
          absl::StrFormat("%.3fs", result.p99_latency_seconds),
          InTime(result)};
}

const Row kTenantTitles = {"POLICY",    "TENANT", "JOBS",      "REFUSED",
                           "WAITED",    "WAIT",   "BORROWED",  "LENT",
                           "RECLAIMED", "LOST",   "NO CREDIT", "TIME BORROWED",
                           "TIME LENT"};

// What it borrowed and lent of the memory is the mean over the makespan.
Row TenantCells(const std::string& policy, const std::string& tenant,
                const TenantResult& result, double makespan_seconds) {
  const auto mean = [&](double byte_seconds) {
    return FormatBytes(
        makespan_seconds > 0
            ? static_cast<uint64_t>(byte_seconds / makespan_seconds)
            : 0);
  };
  const auto seconds = [](double value) {
    return absl::StrFormat("%.1fs", value);
  };
  return {policy,
          tenant,
          absl::StrCat(result.jobs),
          absl::StrCat(result.refused_by_quota),
          absl::StrCat(result.waited_for_quota),
          seconds(result.quota_wait_seconds),
          mean(result.loans.borrowed_byte_seconds),
          mean(result.loans.lent_byte_seconds),
          absl::StrCat(result.reclaimed),
          seconds(result.lost_device_seconds),
          seconds(result.credit_wait_seconds),
          seconds(result.loans.borrowed_device_seconds),
          seconds(result.loans.lent_device_seconds)};
}

// As JSON reads it back, whatever is in it.
std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&quoted, "\\u%04x", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string ToJson(const std::string& tenant, const TenantResult& result) {
  return absl::StrFormat(
      "{\"tenant\": %s, \"jobs\": %u, \"finished\": %u, "
      "\"refused_by_quota\": %u, \"waited_for_quota\": %u, "
      "\"quota_wait_seconds\": %g, \"credit_wait_seconds\": %g, "
      "\"borrowed_byte_seconds\": %g, \"lent_byte_seconds\": %g, "
      "\"borrowed_device_seconds\": %g, \"lent_device_seconds\": %g, "
      "\"reclaimed\": %u, \"lost_device_seconds\": %g}",
      Quoted(tenant), result.jobs, result.finished, result.refused_by_quota,
      result.waited_for_quota, result.quota_wait_seconds,
      result.credit_wait_seconds, result.loans.borrowed_byte_seconds,
      result.loans.lent_byte_seconds, result.loans.borrowed_device_seconds,
      result.loans.lent_device_seconds, result.reclaimed,
      result.lost_device_seconds);
}

std::string ToJson(JobClass job_class, const ClassResult& result) {
  return absl::StrFormat(
      "{\"class\": \"%s\", \"jobs\": %u, \"finished\": %u, "
      "\"unplaced\": %u, \"late\": %u, \"p50_latency_seconds\": %g, "
      "\"p99_latency_seconds\": %g, \"deadlines\": %u, \"attained\": %u}",
      scheduler::JobClassName(job_class), result.jobs, result.finished,
      result.unplaced, result.late, result.p50_latency_seconds,
      result.p99_latency_seconds, result.deadlines, result.attained);
}

std::string ToJson(const std::string& policy, const scheduler::Trace& trace,
                   const SimulationResult& result) {
  std::vector<std::string> tenants;
  for (size_t i = 0; i < result.tenants.size(); ++i) {
    tenants.push_back(ToJson(trace.tenants[i].name, result.tenants[i]));
  }
  std::vector<std::string> classes;
  for (const auto& [job_class, of_class] : result.classes) {
    classes.push_back(ToJson(job_class, of_class));
  }
  return absl::StrFormat(
      "{\"policy\": \"%s\", \"finished\": %u, \"refused\": %u, "
      "\"mean_latency_seconds\": %g, \"p99_latency_seconds\": %g, "
      "\"interactive_p99_seconds\": %g, \"preemptions\": %u, "
      "\"makespan_seconds\": %g, \"busy_seconds\": %g, \"cost\": %g, "
      "\"imbalance\": %g, \"moved_bytes\": %u, \"decisions\": %u, "
      "\"looked_at\": %u, \"reservations\": %u, \"classes\": [%s]%s}",
      policy, result.finished, result.refused, result.mean_latency_seconds,
      result.p99_latency_seconds, result.interactive_p99_seconds,
      result.preemptions, result.makespan_seconds, result.busy_seconds,
      result.cost, result.imbalance, result.moved_bytes, result.decisions,
      result.looked_at, result.reservations, absl::StrJoin(classes, ", "),
      tenants.empty() ? ""
                      : absl::StrCat(", \"tenants\": [",
                                     absl::StrJoin(tenants, ", "), "]"));
}

}  // namespace

absl::StatusOr<std::string> ShowSimulation(const scheduler::Trace& trace,
                                           const std::string& policy,
                                           bool preemption, bool json) {
  std::vector<std::string> names = scheduler::PolicyNames();
  if (!policy.empty()) names = {policy};
  std::vector<Row> rows = {{"POLICY", "FINISHED", "REFUSED", "LATENCY", "P99",
                            "INTERACTIVE", "MAKESPAN", "BUSY", "COST",
                            "IMBALANCE", "MOVED", "GAVE WAY"}};
  std::vector<Row> classes = {{"POLICY", "CLASS", "JOBS", "FINISHED",
                               "UNPLACED", "LATE", "P50", "P99", "IN TIME"}};
  std::vector<Row> tenants = {kTenantTitles};
  std::vector<std::string> objects;
  for (const std::string& name : names) {
    DJINN_ASSIGN_OR_RETURN(const scheduler::Policy* const found,
                           scheduler::FindPolicy(name));
    DJINN_ASSIGN_OR_RETURN(
        const SimulationResult result,
        scheduler::Simulate(trace, *found, {.preemption = preemption}));
    rows.push_back(Cells(name, result));
    for (const auto& [job_class, of_class] : result.classes) {
      classes.push_back(ClassCells(name, job_class, of_class));
    }
    for (size_t i = 0; i < result.tenants.size(); ++i) {
      tenants.push_back(TenantCells(name, trace.tenants[i].name,
                                    result.tenants[i],
                                    result.makespan_seconds));
    }
    objects.push_back(ToJson(name, trace, result));
  }
  if (!json) {
    std::string text =
        absl::StrCat(FormatTable(rows), "\n", FormatTable(classes));
    // Only where there are quotas.
    if (tenants.size() > 1) absl::StrAppend(&text, "\n", FormatTable(tenants));
    return text;
  }
  return absl::StrCat("[", absl::StrJoin(objects, ",\n "), "]\n");
}

}  // namespace djinn::ctl
