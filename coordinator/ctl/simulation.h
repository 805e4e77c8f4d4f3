// Plays a trace under every policy, and shows the results of each.
#ifndef COORDINATOR_CTL_SIMULATION_H_
#define COORDINATOR_CTL_SIMULATION_H_

#include <string>

#include "absl/status/statusor.h"
#include "scheduler/simulator/trace.h"

namespace djinn::ctl {

// Returns tables of policies, of their classes of jobs and, where there are
// quotas, of tenants; or JSON. Returns InvalidArgument (POLICY_UNKNOWN) for an
// unknown policy; an empty one stands for all. `preemption` is as in
// scheduler::SimulationOptions. Other errors are those of
// scheduler::Simulate().
absl::StatusOr<std::string> ShowSimulation(const scheduler::Trace& trace,
                                           const std::string& policy,
                                           bool preemption, bool json);

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_SIMULATION_H_
