#include "gpu_worker/session/state/pulls.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "gpu_worker/pull/link_rates.h"
#include "gpu_worker/pull/peer_pulls.h"
#include "gpu_worker/session/base/violation.h"
#include "gpu_worker/store/device_memory.h"

namespace djinn::worker {
namespace {

// Fewer bytes, which arrive together, say nothing of the link.
constexpr uint64_t kMinPaceBytes = 64 << 10;
// The coordinator refuses a report with a longer one.
constexpr size_t kMaxWorkerId = 512;

}  // namespace

absl::Status Pulls::Begin(const v1::Pull& pull) {
  // Operators and the coordinator see it while the fetch waits.
  if (pull.worker_id().size() > kMaxWorkerId ||
      std::any_of(pull.worker_id().begin(), pull.worker_id().end(), [](char c) {
        return absl::ascii_iscntrl(static_cast<unsigned char>(c));
      })) {
    return Violation(absl::StrCat("fetches from a worker whose id has ",
                                  pull.worker_id().size(),
                                  " bytes or a control character"));
  }
  Pull begun;
  begun.worker_id = pull.worker_id();
  begun.started = environment_.clock->Monotonic();
  DeviceMemory* const memory = environment_.memory;
  std::shared_ptr<Buffer> buffer;
  // A value on this worker is shared, so it needs no buffer.
  if (pull.worker_id() != environment_.worker_id) {
    DJINN_ASSIGN_OR_RETURN(
        Reservation reservation,
        memory->Reserve(MemoryClass::kTransfers, tenant_, pull.size_bytes()));
    DJINN_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> unset,
                           memory->device()->AllocateUnset(pull.size_bytes()));
    begun.reservation = std::make_shared<Reservation>(std::move(reservation));
    buffer = DeviceMemory::Track(std::move(unset), begun.reservation);
  }
  const auto incoming = std::make_shared<IncomingPull>(
      memory->device(), environment_.clock, std::move(buffer), settled_);
  begun.incoming = incoming;
  {
    MutexLock lock(&mu_);
    pull_ = std::move(begun);
  }
  v1::PullRequest request;
  request.set_session_id(session_id_);
  request.set_ticket(pull.ticket());
  request.set_size_bytes(pull.size_bytes());
  request.set_worker_incarnation(pull.worker_incarnation());
  environment_.pulls->Start(pull.worker_id(), request, incoming);
  return absl::OkStatus();
}

Pulls::Pull Pulls::Take() {
  Pull pull;
  {
    MutexLock lock(&mu_);
    pull = std::exchange(pull_, Pull());
  }
  // Cancel() also frees a fetch that is still under way.
  if (pull.incoming != nullptr) environment_.pulls->Cancel(pull.incoming.get());
  return pull;
}

void Pulls::Forget() { Take(); }

Pulls::Pulled Pulls::Finish() {
  const Pull pull = Take();
  Pulled pulled;
  pulled.outcome = pull.incoming->Take();
  pulled.reservation = pull.reservation;
  if (pulled.outcome.buffer != nullptr) {
    const IncomingPull::Pace pace = pull.incoming->pace();
    if (pace.bytes >= kMinPaceBytes && pace.took > absl::ZeroDuration()) {
      pulled.link =
          environment_.links->Add(pull.worker_id, pace.bytes, pace.took);
    }
  } else if (!pulled.outcome.poison.has_value()) {
    const absl::Status cause = pulled.outcome.failure;
    const std::string& here = environment_.worker_id;
    pulled.outcome.failure = MakeError(
        cause.code(), kPullFailed,
        absl::StrCat("worker ", here, " could not fetch the value from worker ",
                     pull.worker_id, ": ", cause.message()),
        {{"source", pull.worker_id},
         {"worker", here},
         {"cause", ErrorReason(cause)}});
  }
  return pulled;
}

void Pulls::CheckDeadline() {
  const absl::Duration timeout = 2 * environment_.transfer_idle_timeout;
  std::shared_ptr<IncomingPull> incoming;
  std::string worker_id;
  {
    MutexLock lock(&mu_);
    if (pull_.incoming == nullptr || pull_.incoming->settled() ||
        environment_.clock->Monotonic() - pull_.incoming->last_news() <
            timeout) {
      return;
    }
    incoming = pull_.incoming;
    worker_id = pull_.worker_id;
  }
  const bool known = environment_.pulls->Knows(worker_id);
  // Only the first outcome counts.
  incoming->OnFailed(MakeError(
      absl::StatusCode::kDeadlineExceeded, "TRANSFER_TIMEOUT",
      absl::StrCat("nothing came for ", absl::FormatDuration(timeout),
                   known ? ""
                         : "; the coordinator has named no such worker to this "
                           "one")));
  environment_.pulls->Cancel(incoming.get());
}

bool Pulls::settled() const {
  MutexLock lock(&mu_);
  return pull_.incoming != nullptr && pull_.incoming->settled();
}

std::optional<Pulls::Awaited> Pulls::awaited() const {
  MutexLock lock(&mu_);
  if (pull_.incoming == nullptr || pull_.incoming->settled()) {
    return std::nullopt;
  }
  return Awaited{pull_.started, pull_.worker_id};
}

}  // namespace djinn::worker
