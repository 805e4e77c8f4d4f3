#include "gpu_worker/registry/departure.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "common/net/bearer.h"
#include "common/net/coordinator_channels.h"
#include "common/net/grpc_status.h"
#include "djinn/v1/worker_departure.grpc.pb.h"
#include "grpcpp/client_context.h"

namespace djinn::worker {
namespace {

constexpr absl::Duration kInterval = absl::Milliseconds(100);
constexpr std::chrono::seconds kCallTimeout(2);

}  // namespace

absl::StatusOr<LeaveFunction> MakeGrpcLeave(GrpcRegistryOptions options) {
  DJINN_ASSIGN_OR_RETURN(
      std::shared_ptr<CoordinatorChannels> channels,
      CoordinatorChannels::Make(options.coordinator, options.security));
  return
      [channels = std::move(channels),
       token = std::move(options.join_token)](const v1::LeaveRequest& request)
          -> absl::StatusOr<v1::LeaveProgress> {
        for (;;) {
          const CoordinatorChannels::Target target = channels->current();
          grpc::ClientContext context;
          context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
          PutBearer(token(), &context);
          v1::LeaveProgress progress;
          const absl::Status status =
              FromGrpcStatus(v1::WorkerDeparture::NewStub(target.channel)
                                 ->Leave(&context, request, &progress));
          if (status.ok()) return progress;
          // Only a coordinator that is away or follows is worth another
          // address.
          if (!absl::IsUnavailable(status) ||
              !channels->NoteFailure(target, status)) {
            return status;
          }
        }
      };
}

std::string AwaitDeparture(const v1::LeaveRequest& request,
                           const LeaveFunction& leave, const WaitFunction& wait,
                           absl::Duration timeout) {
  for (absl::Duration waited; waited < timeout; waited += kInterval) {
    const absl::StatusOr<v1::LeaveProgress> progress = leave(request);
    if (!progress.ok()) {
      return absl::StrCat("the coordinator does not help: ",
                          progress.status().message());
    }
    if (progress->leases() == 0 && progress->settled()) {
      return "nothing is left";
    }
    if (progress->leases() > 0 && !progress->others()) {
      return absl::StrCat("no other worker takes leases; ", progress->leases(),
                          " end here");
    }
    if (wait(kInterval)) return "the process must stop at once";
  }
  return absl::StrCat("the time is over: ", absl::FormatDuration(timeout));
}

void DrainLeases(const v1::LeaveRequest& request, const LeaveFunction& leave,
                 const WaitFunction& wait, absl::Duration timeout) {
  if (timeout == absl::ZeroDuration()) return;
  log::Info("draining", {{"timeout", timeout}});
  const std::string end = AwaitDeparture(request, leave, wait, timeout);
  log::Info("drained", {{"end", end}});
}

}  // namespace djinn::worker
