#include "scheduler/scaling/demand.h"

#include <algorithm>
#include <cmath>

namespace djinn::scheduler {
namespace {

// Over a shorter time, arrivals say little about the rate.
constexpr absl::Duration kLeastHistory = absl::Seconds(1);
// Keeps the rounding of a sum from asking for another worker.
constexpr double kRounding = 1e-9;

}  // namespace

void ArrivalMeter::Add(semantics::Phase phase, absl::Duration device_time,
                       absl::Duration now) {
  if (!begun_) {
    begun_ = true;
    begin_ = last_ = now;
  }
  const double left = std::exp(-absl::FDivDuration(now - last_, kDemandWindow));
  for (double& sum : sums_) sum *= left;
  last_ = now;
  sums_[static_cast<size_t>(phase)] += absl::ToDoubleSeconds(device_time);
}

PhaseAmounts ArrivalMeter::Rates(absl::Duration now) const {
  PhaseAmounts rates = {};
  if (!begun_) return rates;
  const double left = std::exp(-absl::FDivDuration(now - last_, kDemandWindow));
  const double seen =
      1 - std::exp(-absl::FDivDuration(std::max(now - begin_, kLeastHistory),
                                       kDemandWindow));
  for (size_t phase = 0; phase < rates.size(); ++phase) {
    rates[phase] =
        std::max(0.0, sums_[phase] * left /
                          (absl::ToDoubleSeconds(kDemandWindow) * seen));
  }
  return rates;
}

PhaseAmounts Demand(const DemandInputs& inputs) {
  PhaseAmounts demand = {};
  for (size_t phase = 0; phase < demand.size(); ++phase) {
    demand[phase] =
        inputs.arrival_rates[phase] +
        inputs.queued_seconds[phase] / absl::ToDoubleSeconds(kDemandWindow) +
        inputs.waiting_devices[phase];
  }
  return demand;
}

int DesiredWorkers(double demand, double utilisation, int kept) {
  return std::max(
      kept, static_cast<int>(std::ceil(demand / utilisation - kRounding)));
}

}  // namespace djinn::scheduler
