// What happens in a simulated cluster: its workers, its tenants, and the jobs
// that arrive.
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

// A greater one is more urgent, in the line and at the workers.
enum class JobClass { kBatch = 1, kInteractive = 2, kRealtime = 3 };

struct SimulatedTenant {
  std::string name;
  double weight = 1;
  // As scheduler/quota has it: of memory, and of device-seconds per second.
  std::string cohort;
  Quotas quotas;
  std::optional<RateQuota> device_rate;
  // What each of its jobs takes of the memory, used or not. Unset: what the
  // largest state of them all takes.
  std::optional<uint64_t> limit_bytes;
};

struct SimulatedCohort {
  // With those around it: "lab/vision".
  std::string name;
  double weight = 1;
  Quotas quotas;
  std::optional<RateQuota> device_rate;
};

// One virtual device that is asked for, used once, and given back.
struct SimulatedJob {
  double arrival_seconds = 0;
  // Index into Trace::tenants.
  size_t tenant = 0;
  // What must be on the worker, by a name that the tenant's jobs share: a
  // model. Empty: nothing.
  std::string state;
  uint64_t state_bytes = 0;
  Work::Part work;
  // As a session declares it. Nothing: interactive, but training counts as
  // batch at the workers.
  std::optional<JobClass> priority;
  // A run deadline: how long after its arrival it should be done.
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

// "batch"
absl::string_view JobClassName(JobClass job_class);

struct Trace {
  // Ids are unique; what changes over time starts at 0 and is the simulator's.
  std::vector<WorkerFacts> workers;
  std::vector<SimulatedTenant> tenants;
  // Those that have something of their own.
  std::vector<SimulatedCohort> cohorts;
  // In order of arrival.
  std::vector<SimulatedJob> jobs;
  // Of all that is drawn while it is played.
  uint64_t seed = 1;
  // A job takes what was predicted, times or divided by up to 1 + noise.
  double noise = 0;
  // As the coordinator's settings of these names.
  double lease_request_timeout_seconds = 10;
  double line_patience_seconds = 5;
  double reclaim_spares_for_seconds = 30;
  double reclaim_loss_limit_seconds = 600;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_SIMULATOR_TRACE_H_
