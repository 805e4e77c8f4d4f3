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

std::string ToJson(JobClass job_class, const ClassResult& result) {
  return absl::StrFormat(
      "{\"class\": \"%s\", \"jobs\": %u, \"finished\": %u, "
      "\"unplaced\": %u, \"late\": %u, \"p50_latency_seconds\": %g, "
      "\"p99_latency_seconds\": %g, \"deadlines\": %u, \"attained\": %u}",
      scheduler::JobClassName(job_class), result.jobs, result.finished,
      result.unplaced, result.late, result.p50_latency_seconds,
      result.p99_latency_seconds, result.deadlines, result.attained);
}

std::string ToJson(const std::string& policy, const SimulationResult& result) {
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
      "\"looked_at\": %u, \"reservations\": %u, \"classes\": [%s]}",
      policy, result.finished, result.refused, result.mean_latency_seconds,
      result.p99_latency_seconds, result.interactive_p99_seconds,
      result.preemptions, result.makespan_seconds, result.busy_seconds,
      result.cost, result.imbalance, result.moved_bytes, result.decisions,
      result.looked_at, result.reservations, absl::StrJoin(classes, ", "));
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
    objects.push_back(ToJson(name, result));
  }
  if (!json) return absl::StrCat(FormatTable(rows), "\n", FormatTable(classes));
  return absl::StrCat("[", absl::StrJoin(objects, ",\n "), "]\n");
}

}  // namespace djinn::ctl
