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

std::string ToJson(const std::string& policy, const SimulationResult& result) {
  return absl::StrFormat(
      "{\"policy\": \"%s\", \"finished\": %u, \"refused\": %u, "
      "\"mean_latency_seconds\": %g, \"p99_latency_seconds\": %g, "
      "\"interactive_p99_seconds\": %g, \"preemptions\": %u, "
      "\"makespan_seconds\": %g, \"busy_seconds\": %g, \"cost\": %g, "
      "\"imbalance\": %g, \"moved_bytes\": %u, \"decisions\": %u, "
      "\"looked_at\": %u}",
      policy, result.finished, result.refused, result.mean_latency_seconds,
      result.p99_latency_seconds, result.interactive_p99_seconds,
      result.preemptions, result.makespan_seconds, result.busy_seconds,
      result.cost, result.imbalance, result.moved_bytes, result.decisions,
      result.looked_at);
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
  std::vector<std::string> objects;
  for (const std::string& name : names) {
    DJINN_ASSIGN_OR_RETURN(const scheduler::Policy* const found,
                           scheduler::FindPolicy(name));
    DJINN_ASSIGN_OR_RETURN(
        const SimulationResult result,
        scheduler::Simulate(trace, *found, {.preemption = preemption}));
    rows.push_back(Cells(name, result));
    objects.push_back(ToJson(name, result));
  }
  if (!json) return FormatTable(rows);
  return absl::StrCat("[", absl::StrJoin(objects, ",\n "), "]\n");
}

}  // namespace djinn::ctl
