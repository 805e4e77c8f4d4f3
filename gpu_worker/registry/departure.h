// Asks the coordinator to take leases elsewhere before this worker stops.
#ifndef GPU_WORKER_REGISTRY_DEPARTURE_H_
#define GPU_WORKER_REGISTRY_DEPARTURE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "djinn/v1/worker_departure.pb.h"
#include "gpu_worker/registry/grpc_registry.h"

namespace djinn::worker {

// Makes one call of WorkerDeparture.Leave, which takes a few seconds at most.
using LeaveFunction =
    std::function<absl::StatusOr<v1::LeaveProgress>(const v1::LeaveRequest&)>;
// Waits, and returns true when the worker must stop waiting.
using WaitFunction = std::function<bool(absl::Duration)>;

// Says how a worker leaves.
struct Leaving {
  LeaveFunction call;
  // Time in which another coordinator may begin to lead, and workers join it,
  // while this one leaves. Zero if there is one coordinator.
  absl::Duration patience;
  Clock* clock = nullptr;
};

// Returns how to leave the coordinators of the options, or the errors of
// MakeChannel(). The clock must outlive the result.
absl::StatusOr<Leaving> MakeGrpcLeave(GrpcRegistryOptions options,
                                      Clock* clock);

// Calls `leaving.call` again and again, and `wait` between the calls, until the
// worker has no lease and the coordinator has saved the use of all; until
// nothing can move; for at most `timeout`; or until `wait` returns true.
// Nothing can move if no other worker takes leases, or if the coordinator is
// away or does not know this worker for longer than `leaving.patience`. Returns
// what ended it, for the log.
std::string AwaitDeparture(const v1::LeaveRequest& request,
                           const Leaving& leaving, const WaitFunction& wait,
                           absl::Duration timeout);

// Does the same, unless the timeout is 0, and logs the begin and the end.
void DrainLeases(const v1::LeaveRequest& request, const Leaving& leaving,
                 const WaitFunction& wait, absl::Duration timeout);

}  // namespace djinn::worker

#endif  // GPU_WORKER_REGISTRY_DEPARTURE_H_
