// Describes what happens in a simulated cluster: its workers, its tenants, and
// the jobs that arrive.
#ifndef SCHEDULER_SIMULATOR_TRACE_H_
#define SCHEDULER_SIMULATOR_TRACE_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "scheduler/placement/fleet.h"
#include "scheduler/placement/work.h"
#include "scheduler/quota/quota_tree.h"
#include "scheduler/quota/rate_shares.h"

namespace djinn::scheduler {

// Priority class; a greater one is served first, in the wait queue and at the
// workers.
enum class JobClass { kBatch = 1, kInteractive = 2, kRealtime = 3 };

struct SimulatedTenant {
  std::string name;
  double weight = 1;
  // As in scheduler/quota: quotas of memory, and of device-seconds per second.
  std::string cohort;
  Quotas quotas;
  std::optional<RateQuota> device_rate;
  // Memory quota that each of its jobs takes, used or not. Unset means the size
  // of the tenant's largest state.
  std::optional<uint64_t> limit_bytes;
};

struct SimulatedCohort {
  // Path with the cohorts around it, such as "lab/vision".
  std::string name;
  double weight = 1;
  Quotas quotas;
  std::optional<RateQuota> device_rate;
};

// One virtual device that is requested, used once, and released.
struct SimulatedJob {
  double arrival_seconds = 0;
  // Index into Trace::tenants.
  size_t tenant = 0;
  // State that must be on the worker, such as a model, by a name that the
  // tenant's jobs share. Empty means none.
  std::string state;
  uint64_t state_bytes = 0;
  Work::Part work;
  // The class that a session declares. Without one, the job is interactive,
  // except that training counts as batch at the workers.
  std::optional<JobClass> priority;
  // Run deadline: time after its arrival by which it should be done.
  double run_deadline_seconds = std::numeric_limits<double>::infinity();

  bool has_state() const { return !state.empty(); }
  bool has_deadline() const { return std::isfinite(run_deadline_seconds); }
  JobClass class_in_line() const {
    return priority.value_or(JobClass::kInteractive);
  }
  JobClass class_at_worker() const {
    return priority.value_or(work.phase == semantics::Phase::kTraining
                                 ? JobClass::kBatch
                                 : JobClass::kInteractive);
  }
};

// Returns the name of the class, such as "batch".
absl::string_view JobClassName(JobClass job_class);

struct Trace {
  // Ids are unique. The simulator sets the facts that change over time, which
  // start at 0.
  std::vector<WorkerFacts> workers;
  std::vector<SimulatedTenant> tenants;
  // Cohorts that have a weight or a quota of their own.
  std::vector<SimulatedCohort> cohorts;
  // Jobs in order of arrival.
  std::vector<SimulatedJob> jobs;
  // Seed of everything that is drawn during the simulation.
  uint64_t seed = 1;
  // A job takes the predicted time multiplied or divided by up to 1 + noise.
  double noise = 0;
  // The coordinator's settings of these names.
  double lease_request_timeout_seconds = 10;
  double line_patience_seconds = 5;
  double reclaim_spares_for_seconds = 30;
  double reclaim_loss_limit_seconds = 600;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_SIMULATOR_TRACE_H_
