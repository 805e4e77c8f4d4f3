// Asks the coordinator to take leases elsewhere before this worker stops.
#ifndef GPU_WORKER_REGISTRY_DEPARTURE_H_
#define GPU_WORKER_REGISTRY_DEPARTURE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "djinn/v1/worker_departure.pb.h"
#include "gpu_worker/registry/grpc_registry.h"

namespace djinn::worker {

// Makes one call of WorkerDeparture.Leave, which takes a few seconds at most.
using LeaveFunction =
    std::function<absl::StatusOr<v1::LeaveProgress>(const v1::LeaveRequest&)>;
// Waits, and returns true when the worker must stop waiting.
using WaitFunction = std::function<bool(absl::Duration)>;

// Returns the function that calls the coordinator, or the errors of
// MakeChannel().
absl::StatusOr<LeaveFunction> MakeGrpcLeave(GrpcRegistryOptions options);

// Calls `leave` again and again, and `wait` between the calls, until the worker
// has no lease and the coordinator has saved the use of all; until nothing can
// move, because no other worker takes leases or the coordinator is away; for
// at most `timeout`; or until `wait` returns true. Returns what ended it, for
// the log.
std::string AwaitDeparture(const v1::LeaveRequest& request,
                           const LeaveFunction& leave, const WaitFunction& wait,
                           absl::Duration timeout);

// Does the same, unless the timeout is 0, and logs the begin and the end.
void DrainLeases(const v1::LeaveRequest& request, const LeaveFunction& leave,
                 const WaitFunction& wait, absl::Duration timeout);

}  // namespace djinn::worker

#endif  // GPU_WORKER_REGISTRY_DEPARTURE_H_
