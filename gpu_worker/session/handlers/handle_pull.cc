// Handles copies between workers: Offer, which keeps a storage's value for
// another worker to fetch, and Install with a pull, which fetches it.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "gpu_worker/pull/link_rates.h"
#include "gpu_worker/session/base/violation.h"
#include "gpu_worker/session/handlers/handlers.h"

namespace djinn::worker {

absl::Status HandleOffer(SessionState& s, uint64_t sequence,
                         const v1::Offer& offer) {
  Storage* const storage = s.storages.Find(offer.storage());
  if (storage == nullptr || storage->version != offer.version() ||
      storage->generator) {
    return Violation(absl::StrCat("offers storage ", offer.storage(),
                                  " at version ", offer.version(),
                                  ", which is not here"));
  }
  DJINN_RETURN_IF_ERROR(
      Offers::CheckTicket("offers a storage", offer.ticket()));
  // The negated comparison also rejects NaN.
  if (offer.has_remaining_seconds() && !(offer.remaining_seconds() >= 0)) {
    return Violation(absl::StrCat("offers a storage that something waits ",
                                  offer.remaining_seconds(), " s behind"));
  }
  auto bytes = std::make_shared<OfferedBytes>();
  bytes->rank.round = offer.round();
  if (offer.has_remaining_seconds()) {
    bytes->rank.remaining_seconds = offer.remaining_seconds();
  }
  bytes->size_bytes = storage->size_bytes;
  bytes->poison = storage->poison;
  if (bytes->poison == nullptr && storage->buffer == nullptr) {
    absl::StatusOr<std::shared_ptr<Buffer>> buffer =
        s.storage_memory.Allocate(storage, storage->size_bytes);
    if (buffer.ok()) {
      storage->buffer = *std::move(buffer);
    } else {
      bytes->poison = s.errors.Make(buffer.status(), {.sequence = sequence});
    }
  }
  if (bytes->poison == nullptr) {
    bytes->buffer = storage->buffer;
    // One worker alone fetches a kept copy, and it has the latest ticket.
    // Earlier offers would only keep the session from migrating.
    if (storage->kept_copy) s.offers.WithdrawOf(offer.storage());
    s.offers.Pin(offer.storage(), offer.ticket(), bytes);
  }
  // Until now nobody missed the bytes.
  if (bytes->poison != nullptr && bytes->poison->reason() == kCopyGivenUp) {
    s.errors.List(bytes->poison);
  }
  return s.offers.Add(offer.ticket(), std::move(bytes));
}

absl::Status InstallPull(SessionState& s, uint64_t sequence,
                         const v1::Install& install, Storage* storage) {
  const v1::Pull& pull = install.pull();
  QuotaChange change(&s.quota, &storage->quota);
  DJINN_RETURN_IF_ERROR(
      change.To(pull.size_bytes(), storage->quota.own_class()));
  DJINN_RETURN_IF_ERROR(s.pulls.Begin(pull));
  change.Keep();
  storage->size_bytes = pull.size_bytes();
  storage->size_known = true;
  // The storage's old bytes are lost in any case: new bytes arrive, or poison
  // does.
  storage->buffer.reset();
  s.message.pull = ParkedPull{sequence, install.storage()};
  return absl::OkStatus();
}

Pulls::Pulled TakePulled(SessionState& s) {
  Pulls::Pulled pulled = s.pulls.Finish();
  if (pulled.link.has_value()) {
    v1::ControlResponse news;
    *news.mutable_link() = *pulled.link;
    s.replies.outbox.PushNews(std::move(news));
  }
  return pulled;
}

namespace {

void FinishPull(SessionState& s, const ParkedPull& fetch) {
  Storage* const storage = s.storages.Find(fetch.storage);
  Pulls::Pulled pulled = TakePulled(s);
  IncomingPull::Outcome& outcome = pulled.outcome;
  if (outcome.buffer != nullptr) {
    if (pulled.reservation != nullptr) {
      pulled.reservation->MoveTo(MemoryClass::kStorages);
    }
    storage->buffer = std::move(outcome.buffer);
    storage->poison = nullptr;
    return;
  }
  storage->quota.Release();
  if (outcome.poison.has_value()) {
    // The error was reported where it happened, so it is not new here. Its
    // sequence was one of the other session's, so this message's sequence
    // replaces it.
    outcome.poison->set_sequence(fetch.sequence);
    outcome.poison->clear_node();
    storage->poison =
        std::make_shared<const v1::ErrorDetail>(*std::move(outcome.poison));
    // The client may have the value fetched again, there and then here.
    if (storage->poison->reason() == kPullFailed) {
      s.errors.List(storage->poison);
    }
    return;
  }
  storage->poison =
      s.errors.MakePoison(outcome.failure, {.sequence = fetch.sequence});
}

}  // namespace

void ResumePull(SessionState& s, const ParkedPull& pull) {
  if (s.entering != nullptr) {
    ResumeEntering(s, pull.sequence);
  } else {
    FinishPull(s, pull);
  }
}

}  // namespace djinn::worker
