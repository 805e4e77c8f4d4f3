#include "client_lib/session/transfer/upload_table.h"

#include <utility>

#include "common/base/error.h"
#include "common/hash/content_proof.h"

namespace djinn {
namespace {

using State = UploadWait::State;

bool HasErrorCode(const v1::ErrorDetail& error) {
  return error.code() >= 1 && error.code() <= 16;
}

bool IsValid(const v1::TransferDecision& decision) {
  return decision.send() || decision.already_held() ||
         decision.prove().key().size() == kContentKeyBytes ||
         (decision.has_refused() && HasErrorCode(decision.refused()));
}

}  // namespace

void UploadTable::Add(std::shared_ptr<UploadWait> wait) {
  const uint64_t id = wait->transfer_id;
  uploads_[id] = std::move(wait);
}

void UploadTable::ForgetWorker() {
  for (const auto& [id, upload] : uploads_) {
    if (!upload->completed) continue;
    upload->state = State::kOver;
    upload->changed.SignalAll();
  }
  uploads_.clear();
  proofs_.clear();
}

absl::Status UploadTable::Decide(const v1::TransferDecision& decision) {
  if (!IsValid(decision)) {
    return absl::InternalError("a transfer was answered with no decision");
  }
  const auto found = uploads_.find(decision.transfer_id());
  if (found == uploads_.end()) return absl::OkStatus();
  UploadWait& wait = *found->second;
  if (decision.has_prove()) {
    if (wait.state != State::kAsked || !wait.proof.empty()) {
      return absl::InternalError(
          "a proof was asked for where it does not belong");
    }
    wait.state = State::kProve;
    wait.key = decision.prove().key();
  } else if (decision.has_refused()) {
    wait.state = State::kOver;
    wait.refusal = StatusFromDetail(decision.refused());
  } else {
    const bool held = decision.already_held();
    if (!wait.uploaded_before) finds_new_contents_ = held;
    wait.state = held || wait.completed ? State::kOver : State::kSend;
  }
  wait.changed.SignalAll();
  return absl::OkStatus();
}

void UploadTable::Complete(uint64_t transfer_id) {
  const auto found = uploads_.find(transfer_id);
  if (found == uploads_.end()) return;
  UploadWait& wait = *found->second;
  wait.completed = true;
  // In every other state a decision is still to come, because the worker first
  // says on a resumed stream how much it has received.
  if (wait.state == State::kSend) wait.state = State::kOver;
  wait.changed.SignalAll();
}

void UploadTable::QueueProof(UploadWait* wait, absl::string_view key,
                             std::string proof) {
  if (wait->state != State::kProve || wait->key != key) return;
  wait->proof = std::move(proof);
  wait->state = State::kAsked;
  proofs_.push_back(wait->transfer_id);
}

bool UploadTable::TakeProof(v1::TransferProof* message) {
  if (proofs_.empty()) return false;
  const auto found = uploads_.find(proofs_.front());
  proofs_.pop_front();
  if (found == uploads_.end() || found->second->state != State::kAsked) {
    return false;
  }
  message->set_transfer_id(found->first);
  message->set_mac(found->second->proof);
  return true;
}

void UploadTable::Resume(const v1::WorkerHello& hello) {
  proofs_.clear();
  for (const auto& [id, upload] : uploads_) {
    if (upload->state == State::kAsked && !upload->proof.empty()) {
      proofs_.push_back(id);
    }
    if (upload->state != State::kSend) continue;
    upload->resume_at = id == hello.transfer().transfer_id()
                            ? hello.transfer().received_bytes()
                            : UINT64_MAX;
  }
}

}  // namespace djinn
