// How many devices the work that comes in keeps busy.
//
// Demand is counted where work arrives, not where it is done: what is served
// cannot exceed what there is, however much more is asked for. It is the device
// time of what arrives in a second, over the last minute; what is queued, over
// the minute in which it should be gone; and one device for each virtual device
// that finds no worker.
//
// Pure: times are the caller's. Not thread-safe.
#ifndef SCHEDULER_SCALING_DEMAND_H_
#define SCHEDULER_SCALING_DEMAND_H_

#include <array>

#include "absl/time/time.h"
#include "scheduler/semantics/meaning.h"

namespace djinn::scheduler {

// By phase; unspecified for work of which nothing is known.
using PhaseAmounts = std::array<double, semantics::kPhaseCount>;

inline constexpr absl::Duration kDemandWindow = absl::Minutes(1);

// A decaying average of device time a second.
class ArrivalMeter {
 public:
  // Work that takes so long on a device arrived. Times never fall.
  void Add(semantics::Phase phase, absl::Duration device_time,
           absl::Duration now);
  // Devices that this keeps busy. Counts for less than a window as if it had
  // been so all the while before.
  PhaseAmounts Rates(absl::Duration now) const;

 private:
  PhaseAmounts sums_ = {};
  absl::Duration begin_;
  absl::Duration last_;
  bool begun_ = false;
};

// What is known at one moment.
struct DemandInputs {
  PhaseAmounts arrival_rates = {};
  // Device time of what waits at the workers, in seconds.
  PhaseAmounts queued_seconds = {};
  // Virtual devices that no worker could take.
  PhaseAmounts waiting_devices = {};
};

// Devices.
PhaseAmounts Demand(const DemandInputs& inputs);

// Workers for so much demand, each busy for `utilisation` (above 0) of its
// time; not fewer than `kept`, those that hold state of sessions.
int DesiredWorkers(double demand, double utilisation, int kept);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_SCALING_DEMAND_H_
