#include "scheduler/simulator/simulator.h"

#include "common/base/status_macros.h"
#include "scheduler/simulator/simulation.h"
#include "scheduler/simulator/trace_check.h"

namespace djinn::scheduler {

absl::StatusOr<SimulationResult> Simulate(const Trace& trace,
                                          const Policy& policy,
                                          const SimulationOptions& options) {
  DJINN_RETURN_IF_ERROR(CheckTrace(trace));
  return Simulation(trace, policy, options).Play();
}

}  // namespace djinn::scheduler
