// What happens in a simulated cluster: its workers, its tenants, and the jobs
// that arrive.
#ifndef SCHEDULER_SIMULATOR_TRACE_H_
#define SCHEDULER_SIMULATOR_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/placement/fleet.h"
#include "scheduler/placement/work.h"

namespace djinn::scheduler {

struct SimulatedTenant {
  std::string name;
  double weight = 1;
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
};

struct Trace {
  // Ids are unique; what changes over time starts at 0 and is the simulator's.
  std::vector<WorkerFacts> workers;
  std::vector<SimulatedTenant> tenants;
  // In order of arrival.
  std::vector<SimulatedJob> jobs;
  // Of all that is drawn while it is played.
  uint64_t seed = 1;
  // A job takes what was predicted, times or divided by up to 1 + noise.
  double noise = 0;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_SIMULATOR_TRACE_H_
