#include "djinn/cost.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "client_lib/capture/device/lane.h"
#include "client_lib/capture/device/process_session.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"

namespace djinn {
namespace {

// The usage at one moment of the session that was open then, if any.
struct Moment {
  std::shared_ptr<Session> session;
  // Null if no session was open.
  absl::StatusOr<std::unique_ptr<PendingCost>> used =
      std::unique_ptr<PendingCost>();
};

Moment Now() {
  Moment now;
  now.session = capture::CurrentSession();
  if (now.session != nullptr) {
    now.used = now.session->AskCost(capture::CurrentLane());
  }
  return now;
}

absl::StatusOr<Cost> Await(const Moment& moment) {
  DJINN_RETURN_IF_ERROR(moment.used.status());
  return *moment.used == nullptr ? Cost() : (*moment.used)->Wait();
}

}  // namespace

struct CostScope::State {
  const Moment begin = Now();
  Mutex mu;
  std::optional<Moment> end ABSL_GUARDED_BY(mu);
};

CostScope::CostScope() : state_(std::make_unique<State>()) {}

CostScope::~CostScope() = default;

void CostScope::Close() {
  MutexLock lock(&state_->mu);
  if (!state_->end.has_value()) state_->end = Now();
}

absl::StatusOr<Cost> CostScope::Get() {
  Close();
  const Moment* end = nullptr;
  {
    MutexLock lock(&state_->mu);
    end = &*state_->end;  // never changes again
  }
  const Moment& begin = state_->begin;
  // A session that was opened in between starts at zero.
  if (begin.session != nullptr && end->session != begin.session) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, "SESSION_CLOSED",
        "the session that was open when the scope began is closed");
  }
  DJINN_ASSIGN_OR_RETURN(const Cost before, Await(begin));
  DJINN_ASSIGN_OR_RETURN(Cost cost, Await(*end));
  // A device whose worker was lost in between counts from zero.
  cost.device_time -= std::min(cost.device_time, before.device_time);
  cost.bytes_up -= std::min(cost.bytes_up, before.bytes_up);
  cost.bytes_down -= std::min(cost.bytes_down, before.bytes_down);
  cost.runs -= std::min(cost.runs, before.runs);
  return cost;
}

}  // namespace djinn
