#include "client_lib/session/upload_table.h"

#include <utility>

#include "common/content_proof.h"
#include "common/error.h"

namespace djinn {
namespace {

// An error must be one.
bool IsRefused(const v1::TransferDecision& decision) {
  return decision.refused().code() >= 1 && decision.refused().code() <= 16;
}

}  // namespace

void UploadTable::Add(std::shared_ptr<UploadWait> wait) {
  const uint64_t id = wait->transfer_id;
  uploads_[id] = std::move(wait);
}

absl::Status UploadTable::Decide(const v1::TransferDecision& decision) {
  if (!decision.send() && !decision.already_held() && !decision.hash() &&
      decision.prove().key().size() != kContentKeyBytes &&
      !IsRefused(decision)) {
    return absl::InternalError("a transfer was answered with no decision");
  }
  const auto found = uploads_.find(decision.transfer_id());
  if (found == uploads_.end()) return absl::OkStatus();
  UploadWait& wait = *found->second;
  if (decision.hash()) {
    if (wait.state != UploadWait::State::kPending || !wait.hash_follows ||
        wait.hash.has_value()) {
      return absl::InternalError(
          "a hash was asked for where it does not belong");
    }
    wait.state = UploadWait::State::kHash;
  } else if (decision.has_prove()) {
    if (wait.state != UploadWait::State::kPending) {
      return absl::InternalError(
          "a proof was asked for where it does not belong");
    }
    wait.state = UploadWait::State::kProve;
    wait.key = decision.prove().key();
  } else if (decision.has_refused()) {
    wait.state = UploadWait::State::kRefused;
    wait.refusal = StatusFromDetail(decision.refused());
  } else if (decision.already_held()) {
    wait.state = UploadWait::State::kHeld;
    last_hash_was_of_use_ = true;
  } else {
    last_hash_was_of_use_ = wait.state == UploadWait::State::kProving;
    wait.state = UploadWait::State::kSend;
  }
  wait.changed.SignalAll();
  return absl::OkStatus();
}

void UploadTable::Complete(uint64_t transfer_id) {
  const auto found = uploads_.find(transfer_id);
  if (found == uploads_.end()) return;
  found->second->completed = true;
  found->second->changed.SignalAll();
}

void UploadTable::QueueHash(UploadWait* wait, const ContentHash& hash) {
  wait->hash = hash;
  // Otherwise the worker has gone on without.
  if (wait->state == UploadWait::State::kHash) {
    wait->state = UploadWait::State::kPending;
  }
  hashes_.push_back(wait->transfer_id);
}

void UploadTable::QueueProof(UploadWait* wait, std::string proof) {
  wait->proof = std::move(proof);
  wait->state = UploadWait::State::kProving;
  proofs_.push_back(wait->transfer_id);
}

bool UploadTable::TakeHash(v1::TransferHash* message) {
  if (hashes_.empty()) return false;
  const auto found = uploads_.find(hashes_.front());
  hashes_.pop_front();
  if (found == uploads_.end()) return false;
  const ContentHash& hash = *found->second->hash;
  message->set_transfer_id(found->first);
  message->set_hash_high(hash.high);
  message->set_hash_low(hash.low);
  return true;
}

bool UploadTable::TakeProof(v1::TransferProof* message) {
  if (proofs_.empty()) return false;
  const auto found = uploads_.find(proofs_.front());
  proofs_.pop_front();
  if (found == uploads_.end() ||
      found->second->state != UploadWait::State::kProving) {
    return false;
  }
  message->set_transfer_id(found->first);
  message->set_mac(found->second->proof);
  return true;
}

void UploadTable::Resume(const v1::WorkerHello& hello) {
  ForgetQueued();
  for (const auto& [id, upload] : uploads_) {
    if (upload->hash.has_value()) hashes_.push_back(id);
    if (upload->state == UploadWait::State::kProving) proofs_.push_back(id);
    if (upload->state != UploadWait::State::kSend) continue;
    upload->resume_at = id == hello.transfer().transfer_id()
                            ? hello.transfer().received_bytes()
                            : UINT64_MAX;
  }
}

void UploadTable::ForgetQueued() {
  proofs_.clear();
  hashes_.clear();
}

}  // namespace djinn
