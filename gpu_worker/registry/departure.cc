#include "gpu_worker/registry/departure.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
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
// A lease of the leadership is 5 seconds by default.
constexpr absl::Duration kLeaderPatience = absl::Seconds(15);

// Returns whether no leader answered: the coordinator is away, stops, is
// suspended or follows. One that answers gives a reason.
bool IsAway(const absl::Status& status) {
  return absl::IsUnavailable(status) || ErrorReason(status).empty();
}

// Returns whether another leader may answer otherwise: there is none at the
// moment, or it does not know this worker yet.
bool MayPass(const absl::Status& status) {
  return IsAway(status) || ErrorReason(status) == "WORKER_UNKNOWN";
}

}  // namespace

absl::StatusOr<Leaving> MakeGrpcLeave(GrpcRegistryOptions options,
                                      Clock* clock) {
  DJINN_ASSIGN_OR_RETURN(
      std::shared_ptr<CoordinatorChannels> channels,
      CoordinatorChannels::Make(options.coordinator, options.security));
  Leaving leaving = {.clock = clock};
  if (channels->size() > 1) leaving.patience = kLeaderPatience;
  leaving.call =
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
      if (!IsAway(status) || !channels->NoteFailure(target, status)) {
        return status;
      }
    }
  };
  return leaving;
}

std::string AwaitDeparture(const v1::LeaveRequest& request,
                           const Leaving& leaving, const WaitFunction& wait,
                           absl::Duration timeout) {
  const absl::Duration end = leaving.clock->Monotonic() + timeout;
  // When a coordinator helped last.
  absl::Duration helped = leaving.clock->Monotonic();
  // Whether it was asked in vain, so that another one may lead by now.
  bool changed = false;
  while (leaving.clock->Monotonic() < end) {
    const absl::StatusOr<v1::LeaveProgress> progress = leaving.call(request);
    const absl::Duration now = leaving.clock->Monotonic();
    std::string obstacle;
    if (!progress.ok()) {
      obstacle = absl::StrCat("the coordinator does not help: ",
                              progress.status().message());
      if (!MayPass(progress.status())) return obstacle;
      changed = true;
    } else if (progress->leases() == 0) {
      if (progress->settled()) return "nothing is left";
    } else if (!progress->others()) {
      obstacle = absl::StrCat("no other worker takes leases; ",
                              progress->leases(), " end here");
      // Others may join a new leader a moment later.
      if (!changed) return obstacle;
    }
    if (obstacle.empty()) {
      helped = now;
    } else if (now - helped >= leaving.patience) {
      return obstacle;
    }
    if (wait(kInterval)) return "the process must stop at once";
  }
  return absl::StrCat("the time is over: ", absl::FormatDuration(timeout));
}

void DrainLeases(const v1::LeaveRequest& request, const Leaving& leaving,
                 const WaitFunction& wait, absl::Duration timeout) {
  if (timeout == absl::ZeroDuration()) return;
  log::Info("draining", {{"timeout", timeout}});
  const std::string end = AwaitDeparture(request, leaving, wait, timeout);
  log::Info("drained", {{"end", end}});
}

}  // namespace djinn::worker
