#include "coordinator/admin/lineage.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "coordinator/cluster/leases/notifications.h"
#include "coordinator/tables/errors.h"
#include "coordinator/tables/waker.h"
#include "djinn/v1/session.pb.h"

namespace djinn::coordinator::lineage {
namespace {

// Returns NotFound if no virtual device has the storage that was asked for.
absl::Status CheckFound(uint64_t storage, const v1::SessionLineage& lineage) {
  if (storage == 0) return absl::OkStatus();
  std::string text = absl::StrCat("session ", lineage.session_id(),
                                  " keeps no value for storage ", storage);
  for (const v1::DeviceLineage& device : lineage.devices()) {
    if (!device.values().empty()) return absl::OkStatus();
    if (device.obstacle().empty()) continue;
    absl::StrAppend(&text, "; device ", device.virtual_device(), ": ",
                    device.obstacle());
  }
  return MakeError(absl::StatusCode::kNotFound, "STORAGE_UNKNOWN", text);
}

// Does not call `done` if it returns an error.
absl::Status Ask(ClusterState& state, const v1::GetLineageRequest& request,
                 Done done) ABSL_LOCKS_EXCLUDED(state.mu) {
  Wakes wakes;
  MutexLock lock(&state.mu);
  if (state.stopping) {
    return MakeError(absl::StatusCode::kUnavailable, "COORDINATOR_STOPPING",
                     "the coordinator stops");
  }
  const Session* const found = state.FindForOperator(request.session_id());
  if (found == nullptr) return SessionUnknown(request.session_id());
  if (found->link.number == 0) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "SESSION_DETACHED",
                     absl::StrCat("the client of session ",
                                  log::ShortId(found->id), " is away"));
  }
  v1::SessionLineage shown;
  shown.set_session_id(log::ShortId(found->id));
  shown.set_tenant(found->tenant);
  auto answer = [done = std::move(done), shown = std::move(shown),
                 storage = request.storage()](
                    absl::StatusOr<v1::LineageAnswer> answered) mutable {
    if (!answered.ok()) return done(answered.status());
    shown.mutable_devices()->Swap(answered->mutable_devices());
    const absl::Status found = CheckFound(storage, shown);
    if (!found.ok()) return done(found);
    done(std::move(shown));
  };
  DJINN_ASSIGN_OR_RETURN(
      const uint64_t number,
      state.lineage_inquiries.Ask(found->id, state.clock->Monotonic(),
                                  std::move(answer)));
  v1::SessionResponse question;
  question.mutable_lineage()->set_number(number);
  question.mutable_lineage()->set_storage(request.storage());
  notifications::Send(std::move(question), state.sessions.Find(found->id),
                      &wakes);
  return absl::OkStatus();
}

}  // namespace

void Get(ClusterState& state, const v1::GetLineageRequest& request, Done done) {
  const absl::Status asked = Ask(state, request, done);
  if (!asked.ok()) done(asked);
}

void Describe(ClusterState& state, const Recovery& recovery,
              v1::RecoveryInfo* info) {
  *info->mutable_report() = recovery.report;
  *info->mutable_age() =
      ToProtoDuration(state.clock->Monotonic() - recovery.time);
}

}  // namespace djinn::coordinator::lineage
