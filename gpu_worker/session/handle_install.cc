// Executes Install: a value or an eager upload inside the message, a
// generator's state or seed, or a transfer whose bytes come on Bulk.
// handle_pull.cc has bytes from another worker.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "common/status_macros.h"
#include "common/transport/stream.h"
#include "gpu_worker/session/session.h"
#include "gpu_worker/session/violation.h"

namespace djinn::worker {

absl::Status Session::HandleInstall(uint64_t sequence,
                                    const v1::Install& install) {
  const bool birth = install.base_version() == 0;
  const Storage* const existing = storages_.Find(install.storage());
  const bool seeds = install.source_case() == v1::Install::kSeed;
  if (install.source_case() == v1::Install::SOURCE_NOT_SET) {
    return Violation("install without a source");
  }
  // A value in a generator's storage is the generator's state.
  if (!birth && existing != nullptr && seeds && !existing->generator) {
    return Violation(
        absl::StrCat("installs a seed in storage ", install.storage()));
  }
  const v1::Transfer& transfer = install.transfer();
  if (install.has_transfer()) {
    if (transfer.transfer_id() == 0 || transfer.size_bytes() == 0 ||
        transfer_ids_.Contains(transfer.transfer_id())) {
      return Violation(absl::StrCat("transfer ", transfer.transfer_id(), " of ",
                                    transfer.size_bytes(), " bytes"));
    }
  } else if (install.has_pull()) {
    DJINN_RETURN_IF_ERROR(
        Offers::CheckTicket("pulls a value", install.pull().ticket()));
    if (install.pull().size_bytes() == 0 ||
        (existing != nullptr && existing->generator)) {
      return Violation(absl::StrCat("pulls ", install.pull().size_bytes(),
                                    " bytes to storage ", install.storage()));
    }
  } else if (install.has_content()) {
    const uint64_t bytes = install.content().size();
    if (bytes <= limits_.inline_bytes() || bytes > kMaxContentBytes) {
      return Violation(absl::StrCat(
          "a content of ", bytes, " bytes in a message, where more than ",
          limits_.inline_bytes(), " and at most ", kMaxContentBytes, " go"));
    }
  } else if (install.inline_value().size() > limits_.inline_bytes()) {
    return Violation(absl::StrCat(install.inline_value().size(),
                                  " bytes inline, at most ",
                                  limits_.inline_bytes()));
  }
  DJINN_ASSIGN_OR_RETURN(
      Storage * storage,
      NextVersion(install.storage(), install.base_version()));
  if (install.has_transfer()) {
    transfer_ids_.Insert(transfer.transfer_id());
    const Upload upload{sequence, install.storage(), birth,
                        transfer.transfer_id(), transfer.size_bytes()};
    TakeFound(upload, uploads_.Find(transfer, MayHave(upload)));
    return absl::OkStatus();
  }
  const absl::Status status =
      seeds ? storage_memory_.Seed(install.seed().value(), storage)
      : install.has_pull() ? InstallPull(sequence, install, storage)
      : install.has_content()
          ? InstallContent(install.content(), storage)
          : storage_memory_.Install(install.inline_value(), storage);
  if (!status.ok()) {
    RootError error = errors_.MakePoison(status, {.sequence = sequence});
    if (birth) {
      storage->size_bytes = install.has_pull() ? install.pull().size_bytes()
                            : install.has_content()
                                ? install.content().size()
                                : install.inline_value().size();
    }
    // A generator that has a state keeps it.
    if (!storage->generator || storage->buffer == nullptr) {
      storage->poison = error;
    }
  }
  return absl::OkStatus();
}

absl::Status Session::NoGenerator(uint64_t bytes) const {
  return MakeError(
      absl::StatusCode::kInvalidArgument, "INVALID_GENERATOR",
      absl::StrCat("a generator's state of ", bytes, " bytes, at most ",
                   limits_.inline_bytes(), " go inline as they must"));
}

absl::Status Session::InstallContent(const std::string& bytes,
                                     Storage* storage) {
  if (storage->generator) return NoGenerator(bytes.size());
  QuotaChange change(&quota_, &storage->quota);
  DJINN_RETURN_IF_ERROR(change.To(bytes.size(), StorageClass::kContent));
  DJINN_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> buffer, uploads_.Take(bytes));
  change.Keep();
  storage->size_bytes = bytes.size();
  storage->size_known = true;
  TakeUploaded(std::move(buffer), storage);
  return absl::OkStatus();
}

bool Session::MayHave(const Upload& upload) const {
  return !storages_.Find(upload.storage)->generator &&
         upload.size_bytes <= quota_.limit();
}

void Session::StepUpload(const Upload& upload) {
  if (upload.receives) {
    FinishUpload(upload);
  } else {
    TakeFound(upload, uploads_.GoOn());
  }
}

void Session::TakeFound(const Upload& upload, Uploads::Found found) {
  if (!found.waits) return DecideUpload(upload, std::move(found.held));
  if (!Park(upload) || !found.question.has_value()) return;
  v1::ControlResponse response;
  response.set_completed_sequence(upload.sequence - 1);
  SayRoom(&response);
  *response.mutable_transfer() = *std::move(found.question);
  response.mutable_transfer()->set_transfer_id(upload.transfer_id);
  outbox_.Push(std::move(response));
}

bool Session::Park(const Upload& upload) {
  MutexLock lock(&mu_);
  if (dropped_ || cancelling_) return false;
  upload_ = upload;
  return true;
}

void Session::DecideUpload(Upload upload, std::shared_ptr<Buffer> held) {
  Storage* const storage = storages_.Find(upload.storage);
  v1::ControlResponse response;
  v1::TransferDecision* decision = response.mutable_transfer();
  decision->set_transfer_id(upload.transfer_id);
  absl::Status room;
  if (storage->generator) {
    // A state is checked before the storage changes, so it must be inline.
    room = NoGenerator(upload.size_bytes);
  } else if (held != nullptr) {
    room = quota_.Resize(&storage->quota, upload.size_bytes,
                         StorageClass::kContent);
  } else {
    room = ReceiveUpload(upload, storage);
  }
  if (!room.ok()) {
    // The decision carries the refusal; a storage that existed keeps what it
    // had.
    const RootError error = errors_.Make(room, {.sequence = upload.sequence});
    *decision->mutable_refused() = *error;
    if (upload.birth) {
      storage->poison = error;
      storage->size_bytes = upload.size_bytes;
    }
    Reply(std::move(response));
    return;
  }
  storage->size_bytes = upload.size_bytes;
  storage->size_known = true;
  if (held != nullptr) {
    TakeUploaded(std::move(held), storage);
    decision->set_already_held(true);
    Reply(std::move(response));
    return;
  }
  // The old contents are gone in any case: the bytes replace them, or poison.
  storage->buffer.reset();
  upload.receives = true;
  if (!Park(upload)) return;
  decision->set_send(true);
  response.set_completed_sequence(upload.sequence - 1);
  SayRoom(&response);
  outbox_.Push(std::move(response));
}

absl::Status Session::ReceiveUpload(const Upload& upload, Storage* storage) {
  QuotaChange change(&quota_, &storage->quota);
  // The class that it will have, unless the cache is full by then.
  DJINN_RETURN_IF_ERROR(
      change.To(upload.size_bytes, uploads_.Keeps(upload.size_bytes)
                                       ? StorageClass::kContent
                                       : storage->quota.own_class()));
  DJINN_RETURN_IF_ERROR(uploads_.Receive());
  change.Keep();
  return absl::OkStatus();
}

void Session::TakeUploaded(std::shared_ptr<Buffer> buffer, Storage* storage) {
  storage->buffer = std::move(buffer);
  // A full cache does not keep the buffer.
  storage->quota.MoveTo(IsSoleOwner(storage->buffer)
                            ? storage->quota.own_class()
                            : StorageClass::kContent);
  storage->poison = nullptr;
}

void Session::FinishUpload(const Upload& upload) {
  Storage* const storage = storages_.Find(upload.storage);
  absl::StatusOr<std::shared_ptr<Buffer>> bytes = uploads_.Finish();
  if (bytes.ok()) return TakeUploaded(*std::move(bytes), storage);
  storage->quota.Release();
  storage->poison =
      errors_.MakePoison(bytes.status(), {.sequence = upload.sequence});
}

}  // namespace djinn::worker
