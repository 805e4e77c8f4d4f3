#include "coordinator/ctl/simulation.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "coordinator/ctl/table.h"
#include "nlohmann/json.hpp"
#include "scheduler/placement/policy.h"
#include "scheduler/simulator/simulator.h"

namespace djinn::ctl {
namespace {

using Json = nlohmann::ordered_json;
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

// Returns the percentage of jobs with a deadline that met it; "-" without any.
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

// Borrowed and lent memory is the mean over the makespan.
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

Json ToJson(const std::string& tenant, const TenantResult& result) {
  return {{"tenant", tenant},
          {"jobs", result.jobs},
          {"finished", result.finished},
          {"refused_by_quota", result.refused_by_quota},
          {"waited_for_quota", result.waited_for_quota},
          {"quota_wait_seconds", result.quota_wait_seconds},
          {"credit_wait_seconds", result.credit_wait_seconds},
          {"borrowed_byte_seconds", result.loans.borrowed_byte_seconds},
          {"lent_byte_seconds", result.loans.lent_byte_seconds},
          {"borrowed_device_seconds", result.loans.borrowed_device_seconds},
          {"lent_device_seconds", result.loans.lent_device_seconds},
          {"reclaimed", result.reclaimed},
          {"lost_device_seconds", result.lost_device_seconds}};
}

Json ToJson(JobClass job_class, const ClassResult& result) {
  return {{"class", std::string(scheduler::JobClassName(job_class))},
          {"jobs", result.jobs},
          {"finished", result.finished},
          {"unplaced", result.unplaced},
          {"late", result.late},
          {"p50_latency_seconds", result.p50_latency_seconds},
          {"p99_latency_seconds", result.p99_latency_seconds},
          {"deadlines", result.deadlines},
          {"attained", result.attained}};
}

Json ToJson(const std::string& policy, const scheduler::Trace& trace,
            const SimulationResult& result) {
  Json json = {{"policy", policy},
               {"finished", result.finished},
               {"refused", result.refused},
               {"mean_latency_seconds", result.mean_latency_seconds},
               {"p99_latency_seconds", result.p99_latency_seconds},
               {"interactive_p99_seconds", result.interactive_p99_seconds},
               {"preemptions", result.preemptions},
               {"makespan_seconds", result.makespan_seconds},
               {"busy_seconds", result.busy_seconds},
               {"cost", result.cost},
               {"imbalance", result.imbalance},
               {"moved_bytes", result.moved_bytes},
               {"decisions", result.decisions},
               {"looked_at", result.looked_at},
               {"reservations", result.reservations},
               {"classes", Json::array()}};
  for (const auto& [job_class, of_class] : result.classes) {
    json["classes"].push_back(ToJson(job_class, of_class));
  }
  for (size_t i = 0; i < result.tenants.size(); ++i) {
    json["tenants"].push_back(ToJson(trace.tenants[i].name, result.tenants[i]));
  }
  return json;
}

}  // namespace

absl::StatusOr<std::string> ShowSimulation(const scheduler::Trace& trace,
                                           const std::string& policy,
                                           bool preemption, bool json) {
  std::vector<std::string> names = scheduler::PolicyNames();
  if (!policy.empty()) names = {policy};
  std::vector<Row> rows = {{"POLICY", "FINISHED", "REFUSED", "LATENCY", "P99",
                            "INTERACTIVE", "MAKESPAN", "BUSY", "COST",
                            "IMBALANCE", "MOVED", "YIELDED"}};
  std::vector<Row> classes = {{"POLICY", "CLASS", "JOBS", "FINISHED",
                               "UNPLACED", "LATE", "P50", "P99", "IN TIME"}};
  std::vector<Row> tenants = {kTenantTitles};
  Json objects = Json::array();
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
    // Shown only where there are quotas.
    if (tenants.size() > 1) absl::StrAppend(&text, "\n", FormatTable(tenants));
    return text;
  }
  return objects.dump(1) + "\n";
}

}  // namespace djinn::ctl
