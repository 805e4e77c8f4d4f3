#include "scheduler/simulator/simulator.h"

#include <limits>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "scheduler/quota/rate_shares.h"
#include "scheduler/simulator/simulation.h"

namespace djinn::scheduler {
namespace {

absl::Status Bad(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, "BAD_TRACE", what);
}

// Least device time per second; with less, a job would take too long to
// simulate.
constexpr double kLeastDevices = 0.001;

// Checks that each tenant with a rate gets some of it, at least when no other
// tenant wants any.
absl::Status CheckRates(const Trace& trace) {
  std::vector<const SimulatedTenant*> rated;
  std::vector<RateDemand> demands;
  for (const SimulatedTenant& tenant : trace.tenants) {
    if (!tenant.device_rate.has_value()) continue;
    rated.push_back(&tenant);
    demands.push_back({.cohort = tenant.cohort,
                       .quota = *tenant.device_rate,
                       .weight = tenant.weight,
                       .demand = 0});
  }
  std::vector<CohortRate> cohorts;
  for (const SimulatedCohort& cohort : trace.cohorts) {
    cohorts.push_back(
        {cohort.name, cohort.weight, cohort.device_rate.value_or(RateQuota())});
  }
  for (size_t i = 0; i < rated.size(); ++i) {
    demands[i].demand = std::numeric_limits<double>::infinity();
    const RateShare share = ShareRates(demands, cohorts)[i];
    demands[i].demand = 0;
    if (share.own + share.borrowed >= kLeastDevices) continue;
    return Bad(absl::StrCat(
        "tenant ", rated[i]->name, " can have ", share.own + share.borrowed,
        " device-seconds per second, and needs ", kLeastDevices, " at least"));
  }
  return absl::OkStatus();
}

absl::Status CheckQuotas(const Trace& trace) {
  absl::flat_hash_set<std::string> names;
  for (const SimulatedTenant& tenant : trace.tenants) {
    // Quotas are stored by name.
    if (!names.insert(tenant.name).second) {
      return Bad(absl::StrCat("tenant ", tenant.name, " is there twice"));
    }
  }
  names.clear();
  for (const SimulatedCohort& cohort : trace.cohorts) {
    if (!names.insert(cohort.name).second) {
      return Bad(absl::StrCat("cohort ", cohort.name, " is there twice"));
    }
    if (!(cohort.weight > 0)) {
      return Bad(absl::StrCat("cohort ", cohort.name, " has no weight"));
    }
  }
  if (!(trace.reclaim_spares_for_seconds >= 0)) {
    return Bad("reclaim_spares_for is no time");
  }
  if (!(trace.reclaim_loss_limit_seconds >= 1)) {
    return Bad("reclaim_loss_limit is less than a second");
  }
  return CheckRates(trace);
}

// Returns InvalidArgument (BAD_TRACE) with the first reason why no cluster
// could play the trace.
absl::Status CheckTrace(const Trace& trace) {
  if (trace.workers.empty()) return Bad("there are no workers");
  if (trace.tenants.empty()) return Bad("there are no tenants");
  absl::flat_hash_set<std::string> ids;
  for (const WorkerFacts& worker : trace.workers) {
    if (!ids.insert(worker.id).second) {
      return Bad(absl::StrCat("worker ", worker.id, " is there twice"));
    }
    if (!IsKnown(worker.speed)) {
      return Bad(absl::StrCat("worker ", worker.id, " has no speed"));
    }
  }
  for (const SimulatedTenant& tenant : trace.tenants) {
    if (!(tenant.weight > 0)) {
      return Bad(absl::StrCat("tenant ", tenant.name, " has no weight"));
    }
  }
  DJINN_RETURN_IF_ERROR(CheckQuotas(trace));
  double last = 0;
  for (const SimulatedJob& job : trace.jobs) {
    if (!(job.arrival_seconds >= last)) {
      return Bad("jobs do not come in order of arrival");
    }
    last = job.arrival_seconds;
    if (job.tenant >= trace.tenants.size()) {
      return Bad(absl::StrCat("there is no tenant ", job.tenant));
    }
    const SimulatedTenant& tenant = trace.tenants[job.tenant];
    if (tenant.limit_bytes.has_value() &&
        job.state_bytes > *tenant.limit_bytes) {
      return Bad(absl::StrCat("tenant ", tenant.name, " has a state of ",
                              job.state_bytes, " bytes, beyond its limit of ",
                              *tenant.limit_bytes));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SimulationResult> Simulate(const Trace& trace,
                                          const Policy& policy,
                                          const SimulationOptions& options) {
  DJINN_RETURN_IF_ERROR(CheckTrace(trace));
  simulation::State state(trace, policy, options);
  return simulation::Play(state);
}

}  // namespace djinn::scheduler
