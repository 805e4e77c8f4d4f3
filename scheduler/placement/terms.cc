#include "scheduler/placement/terms.h"

#include <algorithm>

namespace djinn::scheduler {
namespace {

// Assumed bandwidth of a worker that does not report one.
constexpr double kLinkBytesPerSecond = 1e9;
// Time that a leased session adds to the wait before its runs are in the queue.
// It is enough to distinguish workers that are otherwise equal.
constexpr double kSecondsPerLease = 1e-3;
// Load that a leased session adds before its runs are in the queue, as a
// fraction of the device.
constexpr double kLoadPerLease = 0.01;
// Assumed time of unknown work, for its cost.
constexpr double kUnknownSeconds = 1;

}  // namespace

Terms ComputeTerms(const Request& request, const WorkerFacts& worker,
                   uint64_t held_bytes, const semantics::CostFactors& factors) {
  Terms terms;
  terms.queue_seconds =
      worker.queued_seconds + worker.leases * kSecondsPerLease;
  terms.missing_bytes =
      request.asked_bytes - std::min(request.asked_bytes, held_bytes);
  const double measured = request.measured_link
                              ? request.measured_link(worker.id)
                              : worker.client_bytes_per_second;
  terms.link_measured = measured > 0;
  terms.link_bytes_per_second =
      terms.link_measured ? measured : worker.link_bytes_per_second;
  terms.transfer_seconds =
      static_cast<double>(terms.missing_bytes) /
      (terms.link_bytes_per_second > 0 ? terms.link_bytes_per_second
                                       : kLinkBytesPerSecond);
  if (request.work != nullptr) {
    const double best = RooflineSeconds(*request.work, worker.speed);
    terms.compute_seconds =
        PredictSeconds(*request.work, worker.speed, worker.device, factors);
    if (best > 0) terms.compute_factor = terms.compute_seconds / best;
  }
  terms.cost =
      worker.price_per_second *
      (terms.transfer_seconds +
       (terms.compute_seconds > 0 ? terms.compute_seconds : kUnknownSeconds));
  terms.load = worker.busy_share + worker.leases * kLoadPerLease;
  return terms;
}

}  // namespace djinn::scheduler
