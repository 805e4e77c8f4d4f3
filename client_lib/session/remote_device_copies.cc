// Copies from worker to worker, between two virtual devices or two members of
// one: an offer on the source's worker, and an install for which the
// destination's worker fetches it.
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/session/fork_guard.h"
#include "client_lib/session/remote_device.h"
#include "common/error.h"
#include "common/random.h"
#include "common/status_macros.h"

namespace djinn {
namespace {

// What a worker takes as a ticket.
constexpr size_t kTicketBytes = 16;

}  // namespace

absl::Status RemoteDevice::Pull(uint32_t lane, RemoteStorage* storage,
                                PullWork pull, Caller caller) {
  if (IsForkedChild()) return AfterForkError();
  {
    MutexLock lock(&mu_);
    DJINN_RETURN_IF_ERROR(Enter(caller));
    RefuseRecording(lane, "COPIES", "it copies from another virtual device");
    SealedSegments sealed;
    recorder_.SealUsers(storage, /*writers_only=*/false, &sealed);
    QueueSegments(sealed);
    pull.base_version = recorder_.StampWrite(storage);
    Queue({lane, StoragePtr(storage), 0, std::move(pull)},
          /*needs_lease=*/true);
    ++statistics_.device_copies;
  }
  wakeup_.Set();
  return absl::OkStatus();
}

absl::StatusOr<PullWork> RemoteDevice::Offer(uint32_t lane,
                                             RemoteStorage* storage,
                                             Caller caller, OfferRank rank) {
  if (IsForkedChild()) return AfterForkError();
  PullWork pull;
  pull.ticket = context_->options.random->Bytes(kTicketBytes);
  pull.size_bytes = storage->size_bytes();
  if (rank.round == 0) {
    rank.round = context_->rounds.load(std::memory_order_relaxed);
  }
  {
    MutexLock lock(&mu_);
    DJINN_RETURN_IF_ERROR(AwaitWelcome());
    DJINN_RETURN_IF_ERROR(Enter(caller));
    // The last wait: it is this worker that the value is fetched from.
    DJINN_RETURN_IF_ERROR(AwaitMigration());
    RefuseRecording(lane, "COPIES", "it copies to another virtual device");
    pull.worker_id = lease_.worker_id();
    pull.worker_incarnation = lease_.worker_incarnation();
    SealedSegments writers;
    recorder_.SealUsers(storage, /*writers_only=*/true, &writers);
    QueueSegments(writers);
    if (!storage->born_) {
      Queue({lane, StoragePtr(storage), 0,
             CreateWork{recorder_.StampWrite(storage), pull.size_bytes}},
            /*needs_lease=*/true);
    }
    storage->unsent_uses_.fetch_add(1, std::memory_order_relaxed);
    Queue({lane, StoragePtr(storage), 0,
           OfferWork{storage->version_, pull.ticket, rank}},
          /*needs_lease=*/true);
  }
  wakeup_.Set();
  return pull;
}

RemoteDevice::WorkerFacts RemoteDevice::Facts() const {
  MutexLock lock(&mu_);
  return facts_;
}

double RemoteDevice::LinkFrom(const std::string& worker_id) const {
  MutexLock lock(&mu_);
  return links_.BytesPerSecond(worker_id, Now());
}

void RemoteDevice::Ship(uint32_t lane) {
  {
    MutexLock lock(&mu_);
    SealedSegments sealed;
    recorder_.SealLane(lane, &sealed);
    if (sealed.empty()) return;
    QueueSegments(sealed);
  }
  wakeup_.Set();
}

absl::Status RemoteDevice::Discard(uint32_t lane, RemoteStorage* storage) {
  {
    MutexLock lock(&mu_);
    DJINN_RETURN_IF_ERROR(Enter(Caller::kOrdered));
    if (!storage->born_) return absl::OkStatus();
    SealedSegments sealed;
    recorder_.SealUsers(storage, /*writers_only=*/false, &sealed);
    QueueSegments(sealed);
    Queue({lane, StoragePtr(storage), 0,
           CreateWork{recorder_.StampWrite(storage), 0}},
          /*needs_lease=*/false);
  }
  wakeup_.Set();
  return absl::OkStatus();
}

absl::Status RemoteDevice::AwaitWelcome() {
  lease_due_ = true;
  if (!welcomed_) wakeup_.Set();
  const Deadline deadline(context_->options.connect_timeout * 2,
                          context_->options.clock);
  while (!welcomed_) {
    if (!usable_) return Unusable();
    if (deadline.passed()) {
      return MakeError(absl::StatusCode::kDeadlineExceeded, "OPERATION_TIMEOUT",
                       "no worker was reached");
    }
    WaitUntil(&connection_changed_, &mu_, deadline);
  }
  return absl::OkStatus();
}

void RemoteDevice::Encode(const Work& work, OfferWork& offer,
                          v1::ControlRequest* request) {
  v1::Offer* const message = request->mutable_ordered()->mutable_offer();
  message->set_storage(work.storage->id());
  message->set_version(offer.version);
  message->set_ticket(std::move(offer.ticket));
  message->set_round(offer.rank.round);
  if (offer.rank.remaining_seconds < std::numeric_limits<double>::infinity()) {
    message->set_remaining_seconds(offer.rank.remaining_seconds);
  }
}

void RemoteDevice::Encode(const Work& work, PullWork& pull,
                          v1::ControlRequest* request) {
  v1::Install* const message = request->mutable_ordered()->mutable_install();
  message->set_storage(work.storage->id());
  message->set_base_version(pull.base_version);
  v1::Pull* const source = message->mutable_pull();
  source->set_worker_id(std::move(pull.worker_id));
  source->set_worker_incarnation(pull.worker_incarnation);
  source->set_ticket(std::move(pull.ticket));
  source->set_size_bytes(pull.size_bytes);
}

}  // namespace djinn
