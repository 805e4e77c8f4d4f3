// Computes how many devices the arriving work would keep busy.
//
// Demand is counted where work arrives, not where it is served, because served
// work cannot exceed the existing devices. It is the sum of the device time
// that arrives per second, averaged over the last minute; the queued device
// time, divided by the minute in which it should drain; and one device for each
// virtual device that finds no worker.
//
// Pure: times are the caller's. Not thread-safe.
#ifndef SCHEDULER_SCALING_DEMAND_H_
#define SCHEDULER_SCALING_DEMAND_H_

#include <array>

#include "absl/time/time.h"
#include "scheduler/semantics/cost/meaning.h"

namespace djinn::scheduler {

// Amounts by phase; PHASE_UNSPECIFIED holds work of unknown phase.
using PhaseAmounts = std::array<double, semantics::kPhaseCount>;

inline constexpr absl::Duration kDemandWindow = absl::Minutes(1);

// A decaying average of arriving device time per second.
class ArrivalMeter {
 public:
  // Notes that work of this device time arrived. `now` never decreases.
  void Add(semantics::Phase phase, absl::Duration device_time,
           absl::Duration now);
  // Returns the number of devices that the arrivals keep busy. Before one
  // window has passed, the average is over the time since the first arrival.
  PhaseAmounts Rates(absl::Duration now) const;

 private:
  PhaseAmounts sums_ = {};
  absl::Duration begin_;
  absl::Duration last_;
  bool begun_ = false;
};

// The inputs of Demand() at one moment.
struct DemandInputs {
  PhaseAmounts arrival_rates = {};
  // Device time of the work that waits at workers, in seconds.
  PhaseAmounts queued_seconds = {};
  // Number of virtual devices that wait for a worker.
  PhaseAmounts waiting_devices = {};
};

// Returns the demand in devices, by phase.
PhaseAmounts Demand(const DemandInputs& inputs);

// Returns the number of workers for this demand when each is busy for the
// fraction `utilisation` (above 0) of its time; at least `kept`, the number of
// workers that hold state of sessions.
int DesiredWorkers(double demand, double utilisation, int kept);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_SCALING_DEMAND_H_
