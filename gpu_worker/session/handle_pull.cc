// Copies between workers: Offer, which keeps what a storage holds for another
// worker to fetch, and Install with a pull, which fetches it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "common/status_macros.h"
#include "gpu_worker/pull/link_rates.h"
#include "gpu_worker/session/session.h"
#include "gpu_worker/session/violation.h"

namespace djinn::worker {
namespace {

// What came together says nothing of the link.
constexpr uint64_t kMinPaceBytes = 64 << 10;

}  // namespace

absl::Status Session::PullFailed(const std::string& source,
                                 const absl::Status& cause) const {
  const std::string& here = environment_.worker_id;
  return MakeError(
      cause.code(), "PULL_FAILED",
      absl::StrCat("worker ", here, " could not fetch the value from worker ",
                   source, ": ", cause.message()),
      {{"source", source}, {"worker", here}, {"cause", ErrorReason(cause)}});
}

absl::Status Session::CheckTicket(absl::string_view what,
                                  const std::string& ticket) {
  if (ticket.size() == OfferTable::kTicketBytes) return absl::OkStatus();
  return Violation(absl::StrCat(what, " under a ticket of ", ticket.size(),
                                " bytes, not ", OfferTable::kTicketBytes));
}

absl::Status Session::HandleOffer(uint64_t sequence, const v1::Offer& offer) {
  Storage* const storage = storages_.Find(offer.storage());
  if (storage == nullptr || storage->version != offer.version() ||
      storage->generator) {
    return Violation(absl::StrCat("offers storage ", offer.storage(),
                                  " at version ", offer.version(),
                                  ", which is not here"));
  }
  DJINN_RETURN_IF_ERROR(CheckTicket("offers a storage", offer.ticket()));
  auto bytes = std::make_shared<OfferedBytes>();
  bytes->size_bytes = storage->size_bytes;
  bytes->poison = storage->poison;
  if (bytes->poison == nullptr && storage->buffer == nullptr) {
    absl::StatusOr<std::shared_ptr<Buffer>> buffer =
        storage_memory_.Allocate(storage, storage->size_bytes);
    if (buffer.ok()) {
      storage->buffer = *std::move(buffer);
    } else {
      bytes->poison = errors_.Make(buffer.status(), {.sequence = sequence});
    }
  }
  if (bytes->poison == nullptr) {
    bytes->buffer = storage->buffer;
    if (pinned_.size() >= prune_pinned_at_) {
      ForgetFetched();
      prune_pinned_at_ = std::max(kMinPinned, 2 * pinned_.size());
    }
    pinned_.push_back({offer.storage(), offer.ticket(), bytes, {}});
  }
  return environment_.offers->Add(session_id_, this, offer.ticket(),
                                  std::move(bytes));
}

void Session::ForgetFetched() {
  std::erase_if(pinned_, [](const Pinned& p) { return p.bytes.expired(); });
}

void Session::AccountForOffers() {
  ForgetFetched();
  for (Pinned& pinned : pinned_) {
    if (pinned.share.bytes() > 0) continue;
    const std::shared_ptr<const OfferedBytes> bytes = pinned.bytes.lock();
    if (bytes == nullptr) continue;
    const Storage* const storage = storages_.Find(pinned.storage);
    // As long as the storage has the same bytes they count once.
    if (storage != nullptr && storage->buffer == bytes->buffer) continue;
    absl::StatusOr<QuotaShare> share = quota_.Reserve(bytes->size_bytes);
    if (share.ok()) {
      pinned.share = *std::move(share);
    } else if (!environment_.offers->Withdraw(session_id_, pinned.ticket,
                                              share.status())) {
      // On its way already.
      bytes->recalled = true;
    }
  }
}

absl::StatusOr<std::unique_ptr<Session::Pulling>> Session::PreparePull(
    uint64_t sequence, const v1::Pull& pull) {
  auto pulling = std::make_unique<Pulling>();
  pulling->sequence = sequence;
  pulling->worker_id = pull.worker_id();
  pulling->started = environment_.clock->Monotonic();
  std::shared_ptr<Buffer> buffer;
  // What is here already is shared.
  if (pull.worker_id() != environment_.worker_id) {
    DeviceMemory* const memory = environment_.memory;
    DJINN_ASSIGN_OR_RETURN(
        Reservation reservation,
        memory->Reserve(MemoryClass::kTransfers, tenant_, pull.size_bytes()));
    DJINN_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> unset,
                           memory->device()->AllocateUnset(pull.size_bytes()));
    pulling->reservation =
        std::make_shared<Reservation>(std::move(reservation));
    buffer = DeviceMemory::Track(std::move(unset), pulling->reservation);
  }
  pulling->incoming = std::make_shared<IncomingPull>(
      environment_.memory->device(), environment_.clock, std::move(buffer),
      callbacks_.runnable);
  return pulling;
}

void Session::StartPull(const v1::Pull& pull,
                        std::unique_ptr<Pulling> pulling) {
  const std::shared_ptr<IncomingPull> incoming = pulling->incoming;
  v1::PullRequest request;
  request.set_session_id(session_id_);
  request.set_ticket(pull.ticket());
  request.set_size_bytes(pull.size_bytes());
  request.set_worker_incarnation(pull.worker_incarnation());
  {
    MutexLock lock(&mu_);
    if (dropped_ || cancelling_) return;
    pull_ = std::move(pulling);
  }
  environment_.pulls->Start(pull.worker_id(), request, incoming);
  bool wanted;
  {
    MutexLock lock(&mu_);
    wanted = pull_ != nullptr;
  }
  if (!wanted) environment_.pulls->Cancel(incoming.get());
}

absl::Status Session::InstallPull(uint64_t sequence, const v1::Install& install,
                                  Storage* storage) {
  const v1::Pull& pull = install.pull();
  QuotaChange change(&quota_, &storage->quota);
  DJINN_RETURN_IF_ERROR(change.To(pull.size_bytes(), StorageClass::kOwn));
  absl::StatusOr<std::unique_ptr<Pulling>> pulling =
      PreparePull(sequence, pull);
  if (!pulling.ok()) return pulling.status();
  change.Keep();
  (*pulling)->storage = install.storage();
  storage->size_bytes = pull.size_bytes();
  storage->size_known = true;
  // What it had is gone in any case: the bytes come, or poison does.
  storage->buffer.reset();
  StartPull(pull, *std::move(pulling));
  return absl::OkStatus();
}

void Session::FinishPull(Pulling* pulling) {
  // Also frees what was still under way.
  environment_.pulls->Cancel(pulling->incoming.get());
  IncomingPull::Outcome outcome = pulling->incoming->Take();
  Storage* const storage = storages_.Find(pulling->storage);
  if (outcome.buffer != nullptr) {
    TellPace(*pulling);
    if (pulling->reservation != nullptr) {
      pulling->reservation->MoveTo(MemoryClass::kStorages);
    }
    storage->buffer = std::move(outcome.buffer);
    storage->poison = nullptr;
    return;
  }
  storage->quota.Release();
  if (outcome.poison.has_value()) {
    // Told where it happened; the place is that of the other session's part.
    outcome.poison->set_sequence(pulling->sequence);
    outcome.poison->clear_node();
    storage->poison =
        std::make_shared<const v1::ErrorDetail>(*std::move(outcome.poison));
    return;
  }
  storage->poison =
      errors_.MakePoison(PullFailed(pulling->worker_id, outcome.failure),
                         {.sequence = pulling->sequence});
}

void Session::TellPace(const Pulling& pulling) {
  const IncomingPull::Pace pace = pulling.incoming->pace();
  if (pace.bytes < kMinPaceBytes || pace.took <= absl::ZeroDuration()) return;
  v1::ControlResponse news;
  *news.mutable_link() =
      environment_.links->Add(pulling.worker_id, pace.bytes, pace.took);
  outbox_.PushNews(std::move(news));
}

bool Session::PullStandsStill(absl::Duration now) const {
  return pull_ != nullptr && !pull_->incoming->settled() &&
         now - pull_->incoming->last_news() >=
             2 * environment_.transfer_idle_timeout;
}

void Session::GiveUpPull() {
  std::shared_ptr<IncomingPull> incoming;
  std::string worker_id;
  {
    MutexLock lock(&mu_);
    if (pull_ == nullptr) return;
    incoming = pull_->incoming;
    worker_id = pull_->worker_id;
  }
  const bool known = environment_.pulls->Knows(worker_id);
  // The first outcome counts.
  incoming->OnFailed(MakeError(
      absl::StatusCode::kDeadlineExceeded, "TRANSFER_TIMEOUT",
      absl::StrCat("nothing came for ",
                   absl::FormatDuration(2 * environment_.transfer_idle_timeout),
                   known ? ""
                         : "; the coordinator has named no such worker to this "
                           "one")));
  environment_.pulls->Cancel(incoming.get());
}

}  // namespace djinn::worker
