// Migrate: a session that leaves for another worker offers all that it holds;
// one that enters fetches that, one value after the other.
#include <utility>

#include "common/error.h"
#include "common/status_macros.h"
#include "gpu_worker/pull/peer_call.h"
#include "gpu_worker/session/session.h"
#include "gpu_worker/session/state_offer.h"
#include "gpu_worker/session/violation.h"

namespace djinn::worker {

absl::Status Session::HandleMigrate(uint64_t sequence,
                                    const v1::Migrate& migrate) {
  switch (migrate.step_case()) {
    case v1::Migrate::kLeave:
      return HandleLeave(sequence, migrate.leave());
    case v1::Migrate::kStay:
      return HandleStay();
    case v1::Migrate::kEnter:
      return HandleEnter(sequence, migrate.enter());
    case v1::Migrate::STEP_NOT_SET:
      break;
  }
  return Violation("a migration without a step");
}

absl::Status Session::HandleLeave(uint64_t sequence, const v1::Leave& leave) {
  DJINN_RETURN_IF_ERROR(Offers::CheckTicket("leaves", leave.ticket()));
  v1::ControlResponse response;
  v1::Left* const left = response.mutable_left();
  left->set_sequence(sequence);
  absl::StatusOr<uint64_t> bytes = MakeError(
      absl::StatusCode::kUnavailable, "OFFERS_PENDING",
      "other virtual devices have yet to fetch what this one offered them");
  if (!offers_.Pending()) {
    bytes = OfferState(
        environment_, tenant_, storages_, models_,
        OfferTable::StateTicket(leave.ticket()),
        [this](const std::string& ticket, std::shared_ptr<OfferedBytes> value) {
          return offers_.Add(ticket, std::move(value));
        });
    leaving_ = bytes.ok();
    // What was offered before the error.
    if (!leaving_) offers_.Withdraw();
  }
  if (bytes.ok()) {
    left->set_state_bytes(*bytes);
    *left->mutable_use() = UseSoFar();
  } else {
    *left->mutable_refused() =
        *errors_.Make(bytes.status(), {.sequence = sequence});
  }
  Reply(std::move(response));
  return absl::OkStatus();
}

absl::Status Session::HandleStay() {
  if (!leaving_) return Violation("stays, and did not leave");
  leaving_ = false;
  offers_.Withdraw();
  return absl::OkStatus();
}

absl::Status Session::HandleEnter(uint64_t sequence, const v1::Enter& enter) {
  if (sequence != 1) return Violation("enters in the middle of a session");
  if (enter.state().size_bytes() > 0) {
    DJINN_RETURN_IF_ERROR(
        Offers::CheckTicket("enters", enter.state().ticket()));
  }
  entering_ = std::make_unique<StateArrival>(
      &environment_, tenant_,
      StateArrival::Into{&storages_, &models_, &quota_, &storage_memory_},
      enter.state());
  GoOnEntering(sequence, entering_->Begin());
  return absl::OkStatus();
}

StateArrival::Next Session::TakeFetched() {
  Pulls::Pulled pulled = TakePulled();
  IncomingPull::Outcome& outcome = pulled.outcome;
  if (outcome.buffer == nullptr) {
    return outcome.poison.has_value()
               ? BrokenByPeer("an error in the place of a value")
               : outcome.failure;
  }
  if (pulled.reservation != nullptr) {
    traffic_.Add(Traffic::kMigratedIn, outcome.buffer->size_bytes());
  }
  return entering_->Take(std::move(outcome.buffer), pulled.reservation.get());
}

void Session::GoOnEntering(uint64_t sequence, const StateArrival::Next& next) {
  absl::Status status = next.status();
  if (next.ok() && next->has_value()) {
    status = pulls_.Begin(**next);
    if (status.ok()) return Park(Fetch{sequence});
  }
  v1::ControlResponse response;
  v1::Entered* const entered = response.mutable_entered();
  entered->set_sequence(sequence);
  if (status.ok()) {
    entered->set_storage_count(storages_.size());
    entered->set_moved_bytes(entering_->moved_bytes());
    entered->set_held_bytes(entering_->held_bytes());
  } else {
    storages_.Clear();
    models_.Clear();
    *entered->mutable_refused() = *errors_.Make(status, {.sequence = sequence});
  }
  entering_ = nullptr;
  environment_.contents_changed();
  Reply(std::move(response));
}

}  // namespace djinn::worker
