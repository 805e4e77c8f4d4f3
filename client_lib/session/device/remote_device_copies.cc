// Copies values from worker to worker, between two virtual devices or two
// replicas of one: an offer on the source's worker, and an install for which
// the destination's worker fetches the value.
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/session/device/remote_device.h"
#include "client_lib/session/model/fork_guard.h"
#include "common/base/error.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"

namespace djinn {
namespace {

// The size of tickets that workers accept.
constexpr size_t kTicketBytes = 16;

}  // namespace

absl::Status RemoteDevice::Pull(uint32_t lane, RemoteStorage* storage,
                                PullWork pull) {
  if (IsForkedChild()) return AfterForkError();
  DJINN_RETURN_IF_ERROR(recorder_.Write(lane, storage, std::move(pull),
                                        /*needs_lease=*/true));
  {
    MutexLock lock(&answers_.mu);
    ++answers_.statistics.device_copies;
  }
  wakeup_.Set();
  return absl::OkStatus();
}

absl::StatusOr<PullWork> RemoteDevice::Offer(uint32_t lane,
                                             RemoteStorage* storage,
                                             OfferRank rank) {
  if (IsForkedChild()) return AfterForkError();
  PullWork pull;
  pull.ticket = context_->options.random->Bytes(kTicketBytes);
  pull.size_bytes = storage->size_bytes();
  if (rank.round == 0) {
    rank.round = context_->rounds.load(std::memory_order_relaxed);
  }
  DJINN_RETURN_IF_ERROR(QueueHere(
      [&](CallRecorder::Admit admit) {
        return recorder_.Offer(lane, storage, {0, pull.ticket, rank}, admit);
      },
      [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        pull.worker_id = lease_.worker_id();
        pull.worker_incarnation = lease_.worker_incarnation();
      }));
  wakeup_.Set();
  return pull;
}

WorkerDescription RemoteDevice::Facts() const {
  MutexLock lock(&mu_);
  return facts_;
}

double RemoteDevice::LinkFrom(const std::string& worker_id) const {
  MutexLock lock(&mu_);
  return links_.BytesPerSecond(worker_id, Now());
}

void RemoteDevice::Ship(uint32_t lane) {
  if (recorder_.Seal(lane)) wakeup_.Set();
}

absl::Status RemoteDevice::Discard(uint32_t lane, RemoteStorage* storage) {
  if (!recorder_.IsBorn(*storage)) return failure();
  DJINN_RETURN_IF_ERROR(recorder_.Write(lane, storage, CreateWork{0, 0},
                                        /*needs_lease=*/false));
  wakeup_.Set();
  return absl::OkStatus();
}

absl::Status RemoteDevice::AwaitWelcome() {
  queue_.NeedLease();
  if (!welcomed_) wakeup_.Set();
  const Deadline deadline(context_->options.connect_timeout * 2,
                          context_->options.clock);
  while (!welcomed_) {
    if (!end_.usable()) return end_.Reason();
    if (deadline.passed()) {
      return MakeError(absl::StatusCode::kDeadlineExceeded, "OPERATION_TIMEOUT",
                       "no worker was reached");
    }
    WaitUntil(&connection_changed_, &mu_, deadline);
  }
  return absl::OkStatus();
}

}  // namespace djinn
