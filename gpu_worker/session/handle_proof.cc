// Another tenant's bytes in place of an upload, once the client has proved that
// it has them.
//
// Every upload of a tenant that shares contents, and that the tenant does not
// have here, is asked for a proof: whether there is anything to prove, only a
// right one tells.
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/content_proof.h"
#include "gpu_worker/session/session.h"
#include "gpu_worker/session/violation.h"

namespace djinn::worker {
namespace {

// What even a slow client computes, besides the time that any answer may take.
constexpr double kProofBytesPerSecond = 256 << 20;

}  // namespace

bool Session::AskForProof(uint64_t sequence, uint64_t storage_id,
                          const Storage& storage, bool birth,
                          const v1::Transfer& transfer) {
  ContentCache* const contents = environment_.contents;
  const uint64_t bytes = transfer.size_bytes();
  // Nobody has work done for what the session may not have.
  if (!transfer.provable() || storage.generator || !contents->Shares(tenant_) ||
      bytes > quota_.limit()) {
    return false;
  }
  std::shared_ptr<ContentChallenge> challenge = environment_.proofs->Issue(
      bytes,
      contents->FindShared(tenant_, {transfer.hash_high(), transfer.hash_low()},
                           bytes),
      callbacks_.runnable, callbacks_.charge);
  if (challenge == nullptr) return false;
  v1::ControlResponse response;
  response.set_completed_sequence(sequence - 1);
  v1::TransferDecision* const decision = response.mutable_transfer();
  decision->set_transfer_id(transfer.transfer_id());
  decision->mutable_prove()->set_key(challenge->key());
  auto proving = std::make_unique<Proving>();
  proving->sequence = sequence;
  proving->storage = storage_id;
  proving->birth = birth;
  proving->transfer = transfer;
  proving->challenge = std::move(challenge);
  proving->deadline =
      environment_.clock->Monotonic() + environment_.transfer_idle_timeout +
      absl::Seconds(static_cast<double>(bytes) / kProofBytesPerSecond);
  {
    MutexLock lock(&mu_);
    if (dropped_ || cancelling_) return true;
    challenged_.Insert(transfer.transfer_id());
    proving_ = std::move(proving);
  }
  outbox_.Push(std::move(response));
  return true;
}

void Session::ReceiveProof(v1::TransferProof proof) {
  std::shared_ptr<ContentChallenge> challenge;
  absl::Status violation;
  {
    MutexLock lock(&mu_);
    if (failed_ || dropped_ || cancelling_) return;
    if (!challenged_.Contains(proof.transfer_id())) {
      violation =
          Violation(absl::StrCat("a proof for transfer ", proof.transfer_id(),
                                 ", which nobody asked for"));
    } else if (proof.mac().size() != kContentMacBytes) {
      violation =
          Violation(absl::StrCat("a proof of ", proof.mac().size(),
                                 " bytes for transfer ", proof.transfer_id()));
    } else if (proving_ != nullptr &&
               proving_->transfer.transfer_id() == proof.transfer_id()) {
      challenge = proving_->challenge;
    }
  }
  if (!violation.ok()) return Fail(std::move(violation));
  // Otherwise it came too late, or twice.
  if (challenge != nullptr) {
    challenge->Answer(std::move(*proof.mutable_mac()));
  }
}

void Session::FinishProof(Proving* proving) {
  const v1::Transfer& transfer = proving->transfer;
  std::shared_ptr<Buffer> held = proving->challenge->Take();
  proving->challenge = nullptr;
  if (held != nullptr) {
    environment_.proofs->CountProven();
    environment_.contents->Adopt(
        tenant_, {transfer.hash_high(), transfer.hash_low()}, held);
    environment_.contents_changed();
  }
  DecideTransfer(proving->sequence, proving->storage,
                 storages_.Find(proving->storage), proving->birth, transfer,
                 std::move(held));
}

}  // namespace djinn::worker
