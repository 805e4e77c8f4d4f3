#include "gpu_worker/pull/peer_pulls.h"

#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn::worker {

// A claim on an offer of this worker.
class PeerPulls::LocalClaim : public OfferClaimant {
 public:
  LocalClaim(PeerPulls* pulls, std::shared_ptr<PullReceiver> receiver)
      : pulls_(pulls), receiver_(std::move(receiver)) {}

  void StillWaiting() override { receiver_->OnWaiting(); }
  void Give(std::shared_ptr<const OfferedBytes> bytes) override {
    Forget();
    if (bytes->poison != nullptr) return receiver_->OnPoisoned(*bytes->poison);
    receiver_->OnShared(bytes->buffer);
  }
  void Refuse(absl::Status why) override {
    Forget();
    receiver_->OnFailed(std::move(why));
  }

 private:
  void Forget() {
    MutexLock lock(&pulls_->mu_);
    pulls_->claims_.erase(receiver_.get());
  }

  PeerPulls* const pulls_;
  const std::shared_ptr<PullReceiver> receiver_;
};

void PeerPulls::Learn(const v1::DesiredState& desired) {
  MutexLock lock(&mu_);
  for (const v1::Peer& peer : desired.peers()) {
    if (peers_.size() < kMaxPeers || peers_.contains(peer.worker_id())) {
      peers_[peer.worker_id()] = peer;
    }
  }
  changed_.SignalAll();
}

bool PeerPulls::Knows(const std::string& worker_id) const {
  // The other end of such a connector knows.
  if (connector_ != nullptr && connector_->finds_workers()) return true;
  MutexLock lock(&mu_);
  return worker_id == worker_id_ || peers_.contains(worker_id);
}

void PeerPulls::Start(const std::string& worker_id,
                      const v1::PullRequest& request,
                      std::shared_ptr<PullReceiver> receiver) {
  if (worker_id == worker_id_) return StartHere(request, std::move(receiver));
  Reap();
  auto fetch = std::make_unique<Fetch>();
  fetch->worker_id = worker_id;
  fetch->request = request;
  fetch->receiver = receiver;
  absl::Status refused;
  {
    MutexLock lock(&mu_);
    // A worker that stops drops its sessions, so no receiver needs an answer.
    if (stopping_) return;
    Fetch* const raw = fetch.get();
    fetches_.push_back(std::move(fetch));
    try {
      raw->thread = std::thread([this, raw] { Run(raw); });
    } catch (const std::system_error& error) {
      fetches_.pop_back();
      refused =
          MakeError(absl::StatusCode::kResourceExhausted, "NO_THREAD",
                    absl::StrCat("no thread to fetch with: ", error.what()));
    }
  }
  if (!refused.ok()) receiver->OnFailed(std::move(refused));
}

void PeerPulls::StartHere(const v1::PullRequest& request,
                          std::shared_ptr<PullReceiver> receiver) {
  if (request.worker_incarnation() != incarnation_) {
    return receiver->OnFailed(
        MakeError(absl::StatusCode::kFailedPrecondition, "WRONG_INCARNATION",
                  "the worker restarted since the bytes were offered"));
  }
  const auto claim = std::make_shared<LocalClaim>(this, receiver);
  {
    MutexLock lock(&mu_);
    claims_[receiver.get()] = claim;
  }
  offers_.Claim(request, claim);
}

void PeerPulls::Cancel(const PullReceiver* receiver) {
  std::shared_ptr<LocalClaim> claim;
  {
    MutexLock lock(&mu_);
    const auto found = claims_.find(receiver);
    if (found != claims_.end()) {
      claim = std::move(found->second);
      claims_.erase(found);
    }
    for (const auto& fetch : fetches_) {
      if (fetch->receiver.get() != receiver) continue;
      fetch->cancelled = true;
      if (fetch->call != nullptr) fetch->call->Cancel();
    }
    changed_.SignalAll();
  }
  if (claim != nullptr) offers_.Abandon(claim.get());
}

void PeerPulls::Run(Fetch* fetch) {
  absl::Status status = Receive(fetch);
  if (!status.ok()) fetch->receiver->OnFailed(std::move(status));
  // Nothing may come for a long time that would reap this fetch.
  std::shared_ptr<PullReceiver> receiver;
  {
    MutexLock lock(&mu_);
    receiver = std::move(fetch->receiver);
  }
  receiver.reset();
  Reap();
  MutexLock lock(&mu_);
  fetch->over = true;
}

absl::StatusOr<v1::Peer> PeerPulls::Find(const Fetch& fetch) {
  if (connector_->finds_workers()) {
    v1::Peer peer;
    peer.set_worker_id(fetch.worker_id);
    peer.set_incarnation(fetch.request.worker_incarnation());
    return peer;
  }
  MutexLock lock(&mu_);
  for (;;) {
    if (fetch.cancelled || stopping_) return absl::CancelledError("given up");
    const auto found = peers_.find(fetch.worker_id);
    // A restarted worker counts as unknown until the coordinator announces its
    // new incarnation.
    if (found != peers_.end() &&
        found->second.incarnation() == fetch.request.worker_incarnation()) {
      return found->second;
    }
    changed_.Wait(&mu_);
  }
}

absl::Status PeerPulls::Receive(Fetch* fetch) {
  if (connector_ == nullptr) {
    return MakeError(absl::StatusCode::kUnimplemented, "NO_PEERS",
                     "this worker fetches nothing from others");
  }
  DJINN_ASSIGN_OR_RETURN(v1::Peer peer, Find(*fetch));
  absl::StatusOr<std::optional<v1::ErrorDetail>> poison =
      ReceiveFrom(peer, fetch);
  if (ErrorReason(poison.status()) == kRedirectReason) {
    peer.set_address(ErrorMetadataValue(poison.status(), kRedirectAddress));
    if (peer.address().empty()) return BrokenByPeer("a redirect to nowhere");
    // A second redirect fails the fetch.
    poison = ReceiveFrom(peer, fetch);
  }
  if (!poison.ok()) return poison.status();
  if (poison->has_value()) {
    fetch->receiver->OnPoisoned(**std::move(poison));
  } else {
    fetch->receiver->OnComplete();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<v1::ErrorDetail>> PeerPulls::ReceiveFrom(
    const v1::Peer& peer, Fetch* fetch) {
  DJINN_ASSIGN_OR_RETURN(const std::unique_ptr<PeerCall> call,
                         connector_->Open(peer, fetch->request));
  {
    MutexLock lock(&mu_);
    if (fetch->cancelled || stopping_) return absl::CancelledError("given up");
    fetch->call = call.get();
  }
  absl::StatusOr<std::optional<v1::ErrorDetail>> poison =
      call->Receive(fetch->request.size_bytes(), fetch->receiver.get());
  MutexLock lock(&mu_);
  fetch->call = nullptr;
  return poison;
}

void PeerPulls::Reap() {
  std::list<std::unique_ptr<Fetch>> done;
  {
    MutexLock lock(&mu_);
    for (auto it = fetches_.begin(); it != fetches_.end();) {
      const auto next = std::next(it);
      if ((*it)->over) done.splice(done.end(), fetches_, it);
      it = next;
    }
  }
  for (const auto& fetch : done) fetch->thread.join();
}

void PeerPulls::Shutdown() {
  std::list<std::unique_ptr<Fetch>> fetches;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    for (const auto& fetch : fetches_) {
      if (fetch->call != nullptr) fetch->call->Cancel();
    }
    changed_.SignalAll();
    fetches.swap(fetches_);
  }
  for (const auto& fetch : fetches) fetch->thread.join();
}

}  // namespace djinn::worker
