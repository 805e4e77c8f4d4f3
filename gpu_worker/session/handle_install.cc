// Install: bytes inside the message (a generator's state among them), a
// generator's seed, or a transfer whose bytes come on Bulk. For bytes from
// another worker see handle_pull.cc.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "common/log/log.h"
#include "common/status_macros.h"
#include "gpu_worker/session/session.h"
#include "gpu_worker/session/violation.h"

namespace djinn::worker {
namespace {

ContentHash HashOf(const v1::TransferHash& said) {
  return {said.hash_high(), said.hash_low()};
}

}  // namespace

absl::Status Session::HandleInstall(uint64_t sequence,
                                    const v1::Install& install) {
  const bool birth = install.base_version() == 0;
  const Storage* const existing = storages_.Find(install.storage());
  const bool seeds = install.source_case() == v1::Install::kSeed;
  if (install.source_case() == v1::Install::SOURCE_NOT_SET) {
    return Violation("install without a source");
  }
  // Bytes in a generator's storage are its state.
  if (!birth && existing != nullptr && seeds && !existing->generator) {
    return Violation(
        absl::StrCat("installs a seed in storage ", install.storage()));
  }
  const v1::Transfer& transfer = install.transfer();
  if (install.has_transfer()) {
    if (transfer.hash_follows() &&
        (transfer.hash_high() != 0 || transfer.hash_low() != 0)) {
      return Violation(absl::StrCat("transfer ", transfer.transfer_id(),
                                    " has a hash that follows"));
    }
    if (transfer.transfer_id() == 0 || transfer.size_bytes() == 0 ||
        transfer_ids_.Contains(transfer.transfer_id())) {
      return Violation(absl::StrCat("transfer ", transfer.transfer_id(), " of ",
                                    transfer.size_bytes(), " bytes"));
    }
  } else if (install.has_pull()) {
    DJINN_RETURN_IF_ERROR(
        CheckTicket("pulls a value", install.pull().ticket()));
    if (install.pull().size_bytes() == 0 ||
        (existing != nullptr && existing->generator)) {
      return Violation(absl::StrCat("pulls ", install.pull().size_bytes(),
                                    " bytes to storage ", install.storage()));
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
    InstallTransfer(sequence, install.storage(), storage, birth, transfer);
    return absl::OkStatus();
  }
  const absl::Status status =
      seeds                ? InstallSeed(storage, install.seed().value())
      : install.has_pull() ? InstallPull(sequence, install, storage)
                           : InstallInline(storage, install.inline_value());
  if (!status.ok()) {
    RootError error = errors_.MakePoison(status, {.sequence = sequence});
    if (birth) {
      storage->size_bytes = install.has_pull() ? install.pull().size_bytes()
                                               : install.inline_value().size();
    }
    // A generator that has a state keeps it.
    if (!storage->generator || storage->buffer == nullptr) {
      storage->poison = error;
    }
  }
  return absl::OkStatus();
}

absl::Status Session::InstallInline(Storage* storage,
                                    const std::string& bytes) {
  if (storage->generator) {
    DJINN_RETURN_IF_ERROR(
        environment_.memory->device()->operators()->CheckGenerator(bytes));
  }
  DJINN_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> buffer,
                         AllocateFor(storage, bytes.size()));
  DJINN_RETURN_IF_ERROR(
      environment_.memory->device()->Write(buffer.get(), 0, bytes));
  if (storage->generator) storage->quota.MoveTo(StorageClass::kGenerator);
  storage->buffer = std::move(buffer);
  storage->size_bytes = bytes.size();
  storage->size_known = true;
  storage->poison = nullptr;
  return absl::OkStatus();
}

absl::Status Session::InstallSeed(Storage* storage, uint64_t seed) {
  storage->generator = true;
  DeviceMemory* const memory = environment_.memory;
  OperatorLibrary* const operators = memory->device()->operators();
  DJINN_ASSIGN_OR_RETURN(const uint64_t bytes, operators->GeneratorBytes());
  QuotaChange change(&quota_, &storage->quota);
  DJINN_RETURN_IF_ERROR(change.To(bytes, StorageClass::kGenerator));
  absl::StatusOr<Reservation> reservation =
      memory->Reserve(MemoryClass::kStorages, tenant_, bytes);
  absl::StatusOr<std::shared_ptr<Buffer>> state =
      reservation.ok() ? operators->SeedGenerator(seed) : reservation.status();
  if (!state.ok()) return state.status();
  change.Keep();
  storage->buffer = DeviceMemory::Track(
      *std::move(state),
      std::make_shared<Reservation>(*std::move(reservation)));
  storage->size_bytes = bytes;
  storage->poison = nullptr;
  return absl::OkStatus();
}

void Session::InstallTransfer(uint64_t sequence, uint64_t storage_id,
                              Storage* storage, bool birth,
                              const v1::Transfer& transfer) {
  // Nobody has work done for what the session may not have.
  const bool fits =
      !storage->generator && transfer.size_bytes() <= quota_.limit();
  Searching search;
  search.sequence = sequence;
  search.storage = storage_id;
  search.birth = birth;
  search.transfer = transfer;
  std::shared_ptr<Buffer> held;
  if (transfer.hash_follows()) {
    if (fits && AskForHash(search)) return;
  } else {
    const ContentHash claimed{transfer.hash_high(), transfer.hash_low()};
    held = environment_.contents->Find(tenant_, claimed, transfer.size_bytes());
    if (held != nullptr) {
      KeepOnDisk(claimed, transfer.size_bytes(), /*found=*/true);
    } else if (fits && (StartLoad(search) || AskForProof(search))) {
      return;
    }
  }
  DecideTransfer(sequence, storage_id, storage, birth, transfer,
                 std::move(held));
}

void Session::DecideTransfer(uint64_t sequence, uint64_t storage_id,
                             Storage* storage, bool birth,
                             const v1::Transfer& transfer,
                             std::shared_ptr<Buffer> held) {
  const uint64_t bytes = transfer.size_bytes();
  v1::ControlResponse response;
  v1::TransferDecision* decision = response.mutable_transfer();
  decision->set_transfer_id(transfer.transfer_id());
  absl::Status room;
  std::shared_ptr<Transfer> started;
  if (storage->generator) {
    // Checked before the storage changes, so the bytes must be here.
    room = MakeError(
        absl::StatusCode::kInvalidArgument, "INVALID_GENERATOR",
        absl::StrCat("a generator's state of ", bytes, " bytes, at most ",
                     limits_.inline_bytes(), " go inline as they must"));
  } else if (held != nullptr) {
    room = quota_.Resize(&storage->quota, bytes, StorageClass::kContent);
  } else {
    absl::StatusOr<std::shared_ptr<Transfer>> start =
        StartTransfer(sequence, storage_id, storage, transfer);
    room = start.status();
    if (start.ok()) started = *std::move(start);
  }
  if (!room.ok()) {
    // The client learns it from the decision; a storage that existed keeps what
    // it had.
    const RootError error = errors_.Make(room, {.sequence = sequence});
    *decision->mutable_refused() = *error;
    if (birth) {
      storage->poison = error;
      storage->size_bytes = bytes;
    }
    Reply(std::move(response));
    return;
  }
  storage->size_bytes = bytes;
  storage->size_known = true;
  if (held != nullptr) {
    held.swap(storage->buffer);
    held = nullptr;
    // A full cache keeps nothing more.
    storage->quota.MoveTo(IsSoleOwner(storage->buffer)
                              ? StorageClass::kOwn
                              : StorageClass::kContent);
    storage->poison = nullptr;
    decision->set_already_held(true);
    Reply(std::move(response));
    return;
  }
  // What it had is gone in any case: the bytes come, or poison does.
  storage->buffer.reset();
  {
    MutexLock lock(&mu_);
    if (dropped_ || cancelling_) return;
    if (transfer.hash_follows()) {
      unhashed_.Insert(transfer.transfer_id());
      if (early_hash_.transfer_id() == transfer.transfer_id()) {
        started->claimed = HashOf(early_hash_);
      }
    }
    transfer_ = std::move(started);
  }
  decision->set_send(true);
  response.set_completed_sequence(sequence - 1);
  outbox_.Push(std::move(response));
}

absl::StatusOr<std::shared_ptr<Session::Transfer>> Session::StartTransfer(
    uint64_t sequence, uint64_t storage_id, Storage* storage,
    const v1::Transfer& transfer) {
  const uint64_t bytes = transfer.size_bytes();
  QuotaChange change(&quota_, &storage->quota);
  // As KeepContent() decides, unless the cache is full by then.
  DJINN_RETURN_IF_ERROR(change.To(bytes, bytes <= limits_.inline_bytes()
                                             ? StorageClass::kOwn
                                             : StorageClass::kContent));
  DeviceMemory* const memory = environment_.memory;
  absl::StatusOr<Reservation> reservation =
      memory->Reserve(MemoryClass::kTransfers, tenant_, bytes);
  absl::StatusOr<std::shared_ptr<Buffer>> buffer =
      reservation.ok() ? memory->device()->AllocateUnset(bytes)
                       : reservation.status();
  if (!buffer.ok()) return buffer.status();
  change.Keep();
  auto started = std::make_shared<Transfer>();
  started->id = transfer.transfer_id();
  started->sequence = sequence;
  started->storage = storage_id;
  started->size_bytes = bytes;
  started->sample = transfer.sample();
  if (!transfer.hash_follows()) {
    started->claimed = {transfer.hash_high(), transfer.hash_low()};
  }
  started->reservation = std::make_shared<Reservation>(*std::move(reservation));
  started->buffer =
      DeviceMemory::Track(*std::move(buffer), started->reservation);
  started->chunks.emplace(bytes);
  started->started = started->last_chunk = environment_.clock->Monotonic();
  return started;
}

void Session::ReceiveBulk(uint64_t transfer_id, uint64_t offset,
                          absl::Span<const absl::string_view> pieces) {
  uint64_t bytes = 0;
  for (absl::string_view piece : pieces) bytes += piece.size();
  std::shared_ptr<Transfer> transfer;
  absl::Status violation;
  {
    MutexLock lock(&mu_);
    if (failed_ || dropped_ || cancelling_) return;
    transfer = transfer_;
    const bool asked = transfer != nullptr && transfer->id == transfer_id &&
                       transfer->state == Transfer::State::kReceiving;
    if (!asked && settled_.Contains(transfer_id)) return;
    if (!asked) {
      violation =
          Violation(absl::StrCat("bytes of transfer ", transfer_id,
                                 ", which this worker did not ask for"));
    } else if (!transfer->chunks->Fits(offset, bytes)) {
      violation = Violation(absl::StrCat(bytes, " bytes at ", offset,
                                         " of transfer ", transfer_id, " of ",
                                         transfer->size_bytes, " bytes"));
    } else if (transfer->chunks->state(offset) !=
               ReceivedChunks::State::kMissing) {
      if (transfer->resumed) return;
      violation = Violation(absl::StrCat("bytes at ", offset, " of transfer ",
                                         transfer_id, " twice"));
    } else {
      transfer->chunks->SetWriting(offset);
      ++transfer->writers;
      NoteChunk(bytes, transfer.get());
    }
  }
  if (!violation.ok()) return Fail(std::move(violation));
  traffic_->Add(Traffic::kBulkIn, bytes);
  absl::Status written;
  uint64_t at = offset;
  for (absl::string_view piece : pieces) {
    if (!written.ok()) break;
    written =
        environment_.memory->device()->Write(transfer->buffer.get(), at, piece);
    at += piece.size();
  }
  {
    MutexLock lock(&mu_);
    transfer->chunks->SetHere(offset);
    transfer->last_chunk = environment_.clock->Monotonic();
    if (transfer->chunks->complete()) NoteAllChunks(*transfer);
  }
  if (written.ok()) written = HashWhatIsHere(transfer.get());
  bool settled = false;
  {
    MutexLock lock(&mu_);
    --transfer->writers;
    if (transfer->state == Transfer::State::kReceiving) {
      if (!written.ok()) {
        transfer->state = Transfer::State::kFailed;
        transfer->failure = std::move(written);
        settled_.Insert(transfer->id);
      } else {
        CompleteTransfer(transfer.get());
      }
    }
    settled = transfer->state != Transfer::State::kReceiving &&
              transfer->writers == 0;
  }
  if (settled) callbacks_.runnable();
}

void Session::NoteChunk(uint64_t bytes, Transfer* transfer) {
  if (way_ != StreamWay::kNetwork) return;
  const UploadRate::Mark mark = environment_.uploads->Add(bytes);
  if (!transfer->first.has_value()) transfer->first = mark;
  transfer->last = mark;
}

void Session::NoteAllChunks(const Transfer& transfer) {
  // The time in which there was no stream is not the link's.
  if (!transfer.first.has_value() || transfer.resumed ||
      transfer.size_bytes < UploadRate::kMinBytes) {
    return;
  }
  environment_.uploads->Note(*transfer.first, transfer.last);
}

void Session::CompleteTransfer(Transfer* transfer) {
  if (!transfer->chunks->complete() || !transfer->claimed.has_value()) return;
  transfer->state = Transfer::State::kComplete;
  if (transfer->resumed) settled_.Insert(transfer->id);
}

void Session::ReceiveHash(const v1::TransferHash& said) {
  const ContentHash hash = HashOf(said);
  bool known = false;
  bool settled = false;
  {
    MutexLock lock(&mu_);
    if (failed_ || dropped_ || cancelling_) return;
    known = unhashed_.Contains(said.transfer_id());
    if (transfer_ != nullptr && transfer_->id == said.transfer_id()) {
      // A second one comes where the network cut the stream.
      if (transfer_->state == Transfer::State::kReceiving &&
          !transfer_->claimed.has_value()) {
        transfer_->claimed = hash;
        CompleteTransfer(transfer_.get());
        settled = transfer_->state == Transfer::State::kComplete &&
                  transfer_->writers == 0;
      }
    } else if (searching_ != nullptr && searching_->awaits_hash() &&
               searching_->transfer.transfer_id() == said.transfer_id() &&
               !searching_->hash_said) {
      searching_->hash_said = settled = true;
      searching_->transfer.set_hash_high(hash.high);
      searching_->transfer.set_hash_low(hash.low);
    } else if (known) {
      early_hash_ = said;
    }
  }
  if (!known) {
    return Fail(
        Violation(absl::StrCat("the hash of transfer ", said.transfer_id(),
                               ", which nobody waits for")));
  }
  if (settled) callbacks_.runnable();
}

absl::Status Session::HashWhatIsHere(Transfer* transfer) {
  absl::Status read;
  while (read.ok()) {
    uint64_t here = 0;
    {
      MutexLock lock(&mu_);
      here = transfer->chunks->prefix_bytes();
      // Whoever hashes goes on to the end of what is here.
      if (transfer->hashing || here == transfer->hashed) break;
      transfer->hashing = true;
    }
    const absl::StatusOr<SharedBytes> bytes =
        environment_.memory->device()->HostRange(
            transfer->buffer, transfer->hashed, here - transfer->hashed);
    read = bytes.status();
    if (read.ok()) transfer->hasher.Add(bytes->bytes);
    MutexLock lock(&mu_);
    if (read.ok()) transfer->hashed = here;
    transfer->hashing = false;
  }
  return read;
}

void Session::CheckDeadlines() {
  const absl::Duration now = environment_.clock->Monotonic();
  const absl::Duration timeout = environment_.transfer_idle_timeout;
  absl::Status failure;
  bool pull_stands_still;
  std::shared_ptr<ContentChallenge> unproven;
  std::shared_ptr<ContentLoad> unread;
  bool unhashed = false;
  {
    MutexLock lock(&mu_);
    pull_stands_still = PullStandsStill(now);
    if (searching_ != nullptr && now >= searching_->deadline) {
      unproven = searching_->challenge;
      unread = searching_->load;
      unhashed = searching_->awaits_hash();
      if (unhashed) searching_->hash_late = true;
    }
  }
  if (const absl::Status silent = CheckAcknowledged(now); !silent.ok()) {
    return Fail(silent);
  }
  if (pull_stands_still) return GiveUpPull();
  if (unproven != nullptr) return unproven->Expire();
  if (unread != nullptr) return unread->GiveUp();
  if (unhashed) return callbacks_.runnable();
  {
    MutexLock lock(&mu_);
    // Nothing can come without a stream.
    if (!attached_) return;
    if (need_.has_value() && !need_->supply.has_value() &&
        now - need_->since >= timeout) {
      failure =
          MakeError(absl::StatusCode::kDeadlineExceeded, "NEED_TIMEOUT",
                    absl::StrCat("structure ", need_->structure_id,
                                 " was asked for again and did not come for ",
                                 absl::FormatDuration(timeout)));
    } else if (transfer_ == nullptr || transfer_->writers > 0 ||
               transfer_->state != Transfer::State::kReceiving ||
               now - transfer_->last_chunk < timeout) {
      return;
    } else {
      transfer_->state = Transfer::State::kFailed;
      transfer_->failure = MakeError(
          absl::StatusCode::kDeadlineExceeded, "TRANSFER_TIMEOUT",
          absl::StrCat("transfer ", transfer_->id, " of ",
                       transfer_->size_bytes, " bytes stood still for ",
                       absl::FormatDuration(timeout), " with all before ",
                       transfer_->chunks->prefix_bytes(), " received"));
      settled_.Insert(transfer_->id);
    }
  }
  if (!failure.ok()) return Fail(std::move(failure));
  callbacks_.runnable();
}

void Session::FinishTransfer(Transfer* transfer) {
  Storage* const storage = storages_.Find(transfer->storage);
  absl::Status status = transfer->state == Transfer::State::kComplete
                            ? KeepContent(transfer, storage)
                            : transfer->failure;
  transfer->buffer.reset();
  transfer->reservation.reset();
  if (status.ok()) return;
  storage->quota.Release();
  storage->poison =
      errors_.MakePoison(status, {.sequence = transfer->sequence});
}

absl::Status Session::KeepContent(Transfer* transfer, Storage* storage) {
  const ContentHash hash = transfer->hasher.Hash();
  if (!(hash == *transfer->claimed)) {
    return MakeError(absl::StatusCode::kDataLoss, "CONTENT_MISMATCH",
                     absl::StrCat("the ", transfer->size_bytes,
                                  " bytes of transfer ", transfer->id,
                                  " do not have the hash they were sent with"));
  }
  // A cache has room for so many, whatever their size; clients send less than
  // that inline.
  if (transfer->size_bytes <= limits_.inline_bytes()) {
    transfer->reservation->MoveTo(MemoryClass::kStorages);
    storage->buffer = std::move(transfer->buffer);
    storage->poison = nullptr;
    return absl::OkStatus();
  }
  transfer->reservation->MoveTo(MemoryClass::kContents);
  storage->buffer = environment_.contents->Insert(
      tenant_, hash, std::move(transfer->buffer),
      environment_.clock->Monotonic() - transfer->started, transfer->sample);
  // A full cache keeps nothing more.
  const bool kept = !IsSoleOwner(storage->buffer);
  storage->quota.MoveTo(kept ? StorageClass::kContent : StorageClass::kOwn);
  if (kept) KeepOnDisk(hash, transfer->size_bytes, /*found=*/false);
  storage->poison = nullptr;
  environment_.contents_changed();
  return absl::OkStatus();
}

}  // namespace djinn::worker
