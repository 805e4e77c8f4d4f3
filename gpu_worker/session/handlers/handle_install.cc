// Handles Install: bytes inside the message (a generator's state among them), a
// generator's seed, a content, another storage's bytes, or a transfer whose
// bytes arrive on Bulk.
// handle_pull.cc handles bytes from another worker.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/transport/stream.h"
#include "gpu_worker/session/base/violation.h"
#include "gpu_worker/session/handlers/handlers.h"

namespace djinn::worker {

namespace {

absl::Status NoGenerator(SessionState& s, uint64_t bytes) {
  return MakeError(
      absl::StatusCode::kInvalidArgument, "INVALID_GENERATOR",
      absl::StrCat("a generator's state of ", bytes, " bytes, at most ",
                   s.who.limits.inline_bytes(), " go inline as they must"));
}

void TakeUploaded(std::shared_ptr<Buffer> buffer, Storage* storage) {
  storage->buffer = std::move(buffer);
  // A full cache does not keep the buffer, which then is the storage's own.
  storage->quota.MoveTo(IsSoleOwner(storage->buffer)
                            ? storage->quota.own_class()
                            : StorageClass::kContent);
  storage->poison = nullptr;
}

absl::Status InstallContent(SessionState& s, const std::string& bytes,
                            Storage* storage) {
  if (storage->generator) return NoGenerator(s, bytes.size());
  QuotaChange change(&s.quota, &storage->quota);
  DJINN_RETURN_IF_ERROR(change.To(bytes.size(), StorageClass::kContent));
  DJINN_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> buffer, s.uploads.Take(bytes));
  change.Keep();
  storage->size_bytes = bytes.size();
  storage->size_known = true;
  TakeUploaded(std::move(buffer), storage);
  return absl::OkStatus();
}

absl::Status InstallCopy(SessionState& s, const v1::Install& install,
                         Storage* source, Storage* storage) {
  if (source->poison == nullptr && source->buffer == nullptr) {
    absl::StatusOr<std::shared_ptr<Buffer>> zeros =
        s.storage_memory.Allocate(source, source->size_bytes);
    DJINN_RETURN_IF_ERROR(zeros.status());
    source->buffer = *std::move(zeros);
  }
  storage->quota.Release();
  storage->buffer = source->buffer;
  storage->poison = source->poison;
  storage->size_bytes = source->size_bytes;
  storage->size_known = source->size_known;
  storage->kept_copy = true;
  s.copies.Add(install.storage(), install.copy().storage());
  return absl::OkStatus();
}

// Returns the size of what the message installs at once, or was to install.
uint64_t SizeOf(const v1::Install& install, const Storage* copied) {
  if (copied != nullptr) return copied->size_bytes;
  if (install.has_pull()) return install.pull().size_bytes();
  return install.has_content() ? install.content().size()
                               : install.inline_value().size();
}

bool MayHave(SessionState& s, const ParkedUpload& upload) {
  return !s.storages.Find(upload.storage)->generator &&
         upload.size_bytes <= s.quota.limit();
}

absl::Status ReceiveUpload(SessionState& s, const ParkedUpload& upload,
                           Storage* storage) {
  QuotaChange change(&s.quota, &storage->quota);
  // The class that the bytes will have, unless the cache is full by then.
  DJINN_RETURN_IF_ERROR(
      change.To(upload.size_bytes, s.uploads.Keeps(upload.size_bytes)
                                       ? StorageClass::kContent
                                       : storage->quota.own_class()));
  DJINN_RETURN_IF_ERROR(s.uploads.Receive());
  change.Keep();
  return absl::OkStatus();
}

void DecideUpload(SessionState& s, ParkedUpload upload,
                  std::shared_ptr<Buffer> held) {
  Storage* const storage = s.storages.Find(upload.storage);
  v1::ControlResponse response;
  v1::TransferDecision* decision = response.mutable_transfer();
  decision->set_transfer_id(upload.transfer_id);
  absl::Status room;
  if (storage->generator) {
    // A generator's state must travel inside the message, where it is checked
    // before the storage changes.
    room = NoGenerator(s, upload.size_bytes);
  } else if (held != nullptr) {
    room = s.quota.Resize(&storage->quota, upload.size_bytes,
                          StorageClass::kContent);
  } else {
    room = ReceiveUpload(s, upload, storage);
  }
  if (!room.ok()) {
    // The decision reports the error to the client; a storage that existed
    // keeps its bytes.
    const RootError error = s.errors.Make(room, {.sequence = upload.sequence});
    *decision->mutable_refused() = *error;
    if (upload.creation) {
      storage->poison = error;
      storage->size_bytes = upload.size_bytes;
    }
    Reply(s, std::move(response));
    return;
  }
  storage->size_bytes = upload.size_bytes;
  storage->size_known = true;
  if (held != nullptr) {
    TakeUploaded(std::move(held), storage);
    decision->set_already_held(true);
    Reply(s, std::move(response));
    return;
  }
  // The storage's old bytes are lost in any case: new bytes arrive, or poison
  // does.
  storage->buffer.reset();
  upload.receives = true;
  s.message.upload = upload;
  if (s.status.stopped) return;
  decision->set_send(true);
  response.set_completed_sequence(upload.sequence - 1);
  SayRoom(s, &response);
  s.replies.outbox.Push(std::move(response));
}

void TakeFound(SessionState& s, const ParkedUpload& upload,
               Uploads::Found found) {
  if (!found.waits) return DecideUpload(s, upload, std::move(found.held));
  s.message.upload = upload;
  // A session that stops asks no questions.
  if (s.status.stopped || !found.question.has_value()) return;
  v1::ControlResponse response;
  response.set_completed_sequence(upload.sequence - 1);
  SayRoom(s, &response);
  *response.mutable_transfer() = *std::move(found.question);
  response.mutable_transfer()->set_transfer_id(upload.transfer_id);
  s.replies.outbox.Push(std::move(response));
}

void FinishUpload(SessionState& s, const ParkedUpload& upload) {
  Storage* const storage = s.storages.Find(upload.storage);
  absl::StatusOr<std::shared_ptr<Buffer>> bytes = s.uploads.Finish();
  if (bytes.ok()) return TakeUploaded(*std::move(bytes), storage);
  storage->quota.Release();
  storage->poison =
      s.errors.MakePoison(bytes.status(), {.sequence = upload.sequence});
}

}  // namespace

absl::Status HandleInstall(SessionState& s, uint64_t sequence,
                           const v1::Install& install) {
  const bool creation = install.base_version() == 0;
  const Storage* const existing = s.storages.Find(install.storage());
  const bool seeds = install.source_case() == v1::Install::kSeed;
  if (install.source_case() == v1::Install::SOURCE_NOT_SET) {
    return Violation("install without a source");
  }
  // Bytes may replace a generator's state, but a seed may not replace bytes.
  if (!creation && existing != nullptr && seeds && !existing->generator) {
    return Violation(
        absl::StrCat("installs a seed in storage ", install.storage()));
  }
  const v1::Transfer& transfer = install.transfer();
  if (install.has_transfer()) {
    if (transfer.transfer_id() == 0 || transfer.size_bytes() == 0 ||
        s.transfer_ids.Contains(transfer.transfer_id())) {
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
  } else if (install.has_copy()) {
    const v1::StorageCopy& copy = install.copy();
    const Storage* const source = s.storages.Find(copy.storage());
    if (source == nullptr || source->version != copy.version() ||
        source->generator || copy.storage() == install.storage() ||
        (existing != nullptr && existing->generator)) {
      return Violation(absl::StrCat("copies storage ", copy.storage(),
                                    " at version ", copy.version(),
                                    " to storage ", install.storage()));
    }
  } else if (install.has_content()) {
    const uint64_t bytes = install.content().size();
    if (bytes <= s.who.limits.inline_bytes() || bytes > kMaxContentBytes) {
      return Violation(absl::StrCat("a content of ", bytes,
                                    " bytes in a message, where more than ",
                                    s.who.limits.inline_bytes(),
                                    " and at most ", kMaxContentBytes, " go"));
    }
  } else if (install.inline_value().size() > s.who.limits.inline_bytes()) {
    return Violation(absl::StrCat(install.inline_value().size(),
                                  " bytes inline, at most ",
                                  s.who.limits.inline_bytes()));
  }
  DJINN_ASSIGN_OR_RETURN(
      Storage * storage,
      NextVersion(s, install.storage(), install.base_version()));
  if (install.has_transfer()) {
    s.transfer_ids.Insert(transfer.transfer_id());
    const ParkedUpload upload{sequence, install.storage(), creation,
                              transfer.transfer_id(), transfer.size_bytes()};
    TakeFound(s, upload, s.uploads.Find(transfer, MayHave(s, upload)));
    return absl::OkStatus();
  }
  Storage* const copied =
      install.has_copy() ? s.storages.Find(install.copy().storage()) : nullptr;
  const absl::Status status =
      seeds ? s.storage_memory.Seed(install.seed().value(), storage)
      : install.has_pull() ? InstallPull(s, sequence, install, storage)
      : copied != nullptr  ? InstallCopy(s, install, copied, storage)
      : install.has_content()
          ? InstallContent(s, install.content(), storage)
          : s.storage_memory.Install(install.inline_value(), storage);
  if (!status.ok()) {
    RootError error = s.errors.MakePoison(status, {.sequence = sequence});
    if (creation) storage->size_bytes = SizeOf(install, copied);
    // A generator that has a state keeps it.
    if (!storage->generator || storage->buffer == nullptr) {
      storage->poison = error;
    }
  }
  return absl::OkStatus();
}

void ResumeUpload(SessionState& s, const ParkedUpload& upload) {
  if (upload.receives) {
    FinishUpload(s, upload);
  } else {
    TakeFound(s, upload, s.uploads.GoOn());
  }
}

}  // namespace djinn::worker
