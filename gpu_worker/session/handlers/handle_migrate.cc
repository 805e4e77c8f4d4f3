// Handles Migrate: a session that leaves for another worker offers all that it
// holds; one that enters fetches that, one value after the other.
#include <utility>

#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "gpu_worker/pull/peer_call.h"
#include "gpu_worker/session/base/violation.h"
#include "gpu_worker/session/handlers/handlers.h"
#include "gpu_worker/session/state/state_offer.h"

namespace djinn::worker {

namespace {

absl::Status HandleLeave(SessionState& s, uint64_t sequence,
                         const v1::Leave& leave) {
  DJINN_RETURN_IF_ERROR(Offers::CheckTicket("leaves", leave.ticket()));
  v1::ControlResponse response;
  v1::Left* const left = response.mutable_left();
  left->set_sequence(sequence);
  absl::StatusOr<uint64_t> bytes = MakeError(
      absl::StatusCode::kUnavailable, "OFFERS_PENDING",
      "other virtual devices have yet to fetch what this one offered them");
  if (!s.offers.Pending()) {
    bytes = OfferState(
        s.who.environment, s.who.tenant, s.storages, s.models,
        OfferTable::StateTicket(leave.ticket()),
        [&s](const std::string& ticket, std::shared_ptr<OfferedBytes> value) {
          return s.offers.Add(ticket, std::move(value));
        });
    s.leaving = bytes.ok();
    // Withdraws the offers made before the error.
    if (!s.leaving) s.offers.Withdraw();
  }
  if (bytes.ok()) {
    left->set_state_bytes(*bytes);
    *left->mutable_use() = UseSoFar(s);
  } else {
    *left->mutable_refused() =
        *s.errors.Make(bytes.status(), {.sequence = sequence});
  }
  Reply(s, std::move(response));
  return absl::OkStatus();
}

absl::Status HandleStay(SessionState& s) {
  if (!s.leaving) return Violation("stays, and did not leave");
  s.leaving = false;
  s.offers.Withdraw();
  return absl::OkStatus();
}

StateArrival::Next TakeFetched(SessionState& s) {
  Pulls::Pulled pulled = TakePulled(s);
  IncomingPull::Outcome& outcome = pulled.outcome;
  if (outcome.buffer == nullptr) {
    return outcome.poison.has_value()
               ? BrokenByPeer("an error in the place of a value")
               : outcome.failure;
  }
  if (pulled.reservation != nullptr) {
    s.who.traffic().Add(Traffic::kMigratedIn, outcome.buffer->size_bytes());
  }
  return s.entering->Take(std::move(outcome.buffer), pulled.reservation.get());
}

void GoOnEntering(SessionState& s, uint64_t sequence,
                  const StateArrival::Next& next) {
  absl::Status status = next.status();
  if (next.ok() && next->has_value()) {
    status = s.pulls.Begin(**next);
    if (status.ok()) {
      s.message.pull = ParkedPull{sequence};
      return;
    }
  }
  v1::ControlResponse response;
  v1::Entered* const entered = response.mutable_entered();
  entered->set_sequence(sequence);
  if (status.ok()) {
    entered->set_storage_count(s.storages.size());
    entered->set_moved_bytes(s.entering->moved_bytes());
    entered->set_held_bytes(s.entering->held_bytes());
  } else {
    s.storages.Clear();
    s.models.Clear();
    *entered->mutable_refused() =
        *s.errors.Make(status, {.sequence = sequence});
  }
  s.entering = nullptr;
  s.who.environment.contents_changed();
  Reply(s, std::move(response));
}

absl::Status HandleEnter(SessionState& s, uint64_t sequence,
                         const v1::Enter& enter) {
  if (sequence != 1) return Violation("enters in the middle of a session");
  if (enter.state().size_bytes() > 0) {
    DJINN_RETURN_IF_ERROR(
        Offers::CheckTicket("enters", enter.state().ticket()));
  }
  s.entering = std::make_unique<StateArrival>(
      &s.who.environment, s.who.tenant,
      StateArrival::Into{&s.storages, &s.models, &s.quota, &s.storage_memory},
      enter.state());
  GoOnEntering(s, sequence, s.entering->Begin());
  return absl::OkStatus();
}

}  // namespace

absl::Status HandleMigrate(SessionState& s, uint64_t sequence,
                           const v1::Migrate& migrate) {
  switch (migrate.step_case()) {
    case v1::Migrate::kLeave:
      return HandleLeave(s, sequence, migrate.leave());
    case v1::Migrate::kStay:
      return HandleStay(s);
    case v1::Migrate::kEnter:
      return HandleEnter(s, sequence, migrate.enter());
    case v1::Migrate::STEP_NOT_SET:
      break;
  }
  return Violation("a migration without a step");
}

void ResumeEntering(SessionState& s, uint64_t sequence) {
  GoOnEntering(s, sequence, TakeFetched(s));
}

}  // namespace djinn::worker
