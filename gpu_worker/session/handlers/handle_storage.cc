// Handles CreateStorage, Read and Free.
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/hash/hash.h"
#include "common/srg/proto_codec.h"
#include "gpu_worker/session/base/violation.h"
#include "gpu_worker/session/handlers/handlers.h"

namespace djinn::worker {

absl::Status HandleCreate(SessionState& s, uint64_t sequence,
                          const v1::CreateStorage& create) {
  const bool creation = create.base_version() == 0;
  Storage* const existing = s.storages.Find(create.storage());
  if (create.version() != 0) {
    if (create.version() <= create.base_version()) {
      return Violation(absl::StrCat("takes storage ", create.storage(),
                                    " from version ", create.base_version(),
                                    " to ", create.version()));
    }
    if (!creation) {
      if (existing == nullptr || existing->version != create.base_version()) {
        return Violation(absl::StrCat("leaves versions of storage ",
                                      create.storage(), " out from ",
                                      create.base_version()));
      }
      if (existing->generator || existing->size_bytes == create.size_bytes()) {
        existing->version = create.version();
        return absl::OkStatus();
      }
    }
  }
  if (!creation && existing != nullptr && existing->generator) {
    return Violation(absl::StrCat("resizes generator ", create.storage()));
  }
  DJINN_ASSIGN_OR_RETURN(Storage * storage, NextVersion(s, create.storage(),
                                                        create.base_version()));
  if (create.version() != 0) storage->version = create.version();
  absl::StatusOr<std::shared_ptr<Buffer>> buffer = s.storage_memory.Allocate(
      storage, create.size_bytes(), storage->buffer.get());
  if (!buffer.ok()) {
    storage->poison =
        s.errors.MakePoison(buffer.status(), {.sequence = sequence});
    // A failed resize keeps the old memory and size, so views of the new size
    // are rejected.
    if (creation) storage->size_bytes = create.size_bytes();
    return absl::OkStatus();
  }
  // A poisoned storage stays poisoned, because its prefix is bad.
  storage->buffer = *std::move(buffer);
  storage->size_bytes = create.size_bytes();
  storage->size_known = true;
  return absl::OkStatus();
}

namespace {

absl::StatusOr<SharedBytes> ReadValue(SessionState& s, const v1::Read& read,
                                      Storage* storage) {
  DJINN_ASSIGN_OR_RETURN(srg::TensorView view, srg::FromProto(read.view()));
  DJINN_ASSIGN_OR_RETURN(const uint64_t extent, srg::ExtentBytes(view));
  if (extent > storage->size_bytes) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, "INVALID_VIEW",
        absl::StrCat("a view of ", extent, " bytes, but storage ",
                     read.storage(), " has ", storage->size_bytes));
  }
  // An expanded view has many more elements than its storage.
  DJINN_ASSIGN_OR_RETURN(const int64_t count, srg::ElementCount(view));
  uint64_t bytes;
  if (__builtin_mul_overflow(static_cast<uint64_t>(count),
                             srg::ElementSize(view.data_type), &bytes) ||
      bytes > s.who.limits.memory_bytes()) {
    return LimitExceeded("SESSION_MEMORY", "a value read",
                         s.who.limits.memory_bytes(), 0, bytes);
  }
  if (bytes == 0) return SharedBytes{};
  if (storage->buffer == nullptr) {
    DJINN_ASSIGN_OR_RETURN(storage->buffer, s.storage_memory.Allocate(
                                                storage, storage->size_bytes));
  }
  DeviceMemory* const memory = s.who.environment.memory;
  if (IsPlainContiguous(view)) {
    return memory->device()->ReadView(storage->buffer, view);
  }
  // A copy, accounted for until its last piece is sent.
  struct Gathered {
    Reservation reservation;
    std::shared_ptr<const void> owner;
  };
  auto gathered = std::make_shared<Gathered>();
  DJINN_ASSIGN_OR_RETURN(
      gathered->reservation,
      memory->Reserve(MemoryClass::kTransfers, s.who.tenant, bytes));
  DJINN_ASSIGN_OR_RETURN(SharedBytes value,
                         memory->device()->ReadView(storage->buffer, view));
  gathered->owner = std::move(value.owner);
  return SharedBytes{value.bytes, std::move(gathered)};
}

// Notes that a value leaves for the client.
void NoteResult(SessionState& s) {
  if (!s.runs.results.expects_result()) return;
  const std::optional<ResultTimes::Result> result =
      s.runs.results.NoteResult(s.who.environment.clock->Monotonic());
  if (result.has_value()) s.counts.Result(*result);
}

}  // namespace

absl::Status HandleRead(SessionState& s, uint64_t sequence,
                        const v1::Read& read) {
  Storage* const storage = s.storages.Find(read.storage());
  if (storage == nullptr || storage->version != read.version()) {
    return Violation(absl::StrCat(
        "reads storage ", read.storage(), " at version ", read.version(),
        storage == nullptr ? ", which does not exist"
                           : absl::StrCat(", but it has ", storage->version)));
  }
  if (read.transfer_id() != 0) {
    if (s.transfer_ids.Contains(read.transfer_id())) {
      return Violation(
          absl::StrCat("transfer ", read.transfer_id(), " was used"));
    }
    s.transfer_ids.Insert(read.transfer_id());
  }
  v1::ControlResponse response;
  v1::ReadReply* reply = response.mutable_read();
  reply->set_sequence(sequence);
  if (storage->poison != nullptr) {
    *reply->mutable_error() = *storage->poison;
    Reply(s, std::move(response));
    return absl::OkStatus();
  }
  absl::StatusOr<SharedBytes> value = ReadValue(s, read, storage);
  if (!value.ok()) {
    *reply->mutable_error() =
        *s.errors.Make(value.status(), {.sequence = sequence});
    Reply(s, std::move(response));
    return absl::OkStatus();
  }
  if (read.hash_only()) {
    reply->set_hash(HashSample(value->bytes));
    Reply(s, std::move(response));
    return absl::OkStatus();
  }
  NoteResult(s);
  if (value->bytes.size() <= s.who.limits.inline_bytes()) {
    reply->set_value(value->bytes.data(), value->bytes.size());
    Reply(s, std::move(response));
    return absl::OkStatus();
  }
  if (read.transfer_id() == 0) {
    return Violation(absl::StrCat("a value of ", value->bytes.size(),
                                  " bytes needs a transfer"));
  }
  reply->set_bulk_bytes(value->bytes.size());
  response.set_completed_sequence(sequence - 1);
  SayRoom(s, &response);
  AddTiming(s, &response);
  s.replies.outbox.Push(std::move(response), read.transfer_id(),
                        *std::move(value));
  return absl::OkStatus();
}

absl::Status HandleFree(SessionState& s, const v1::Free& free) {
  absl::flat_hash_set<uint64_t> ids;
  for (const uint64_t id : free.storages()) {
    if (s.storages.Find(id) == nullptr || !ids.insert(id).second) {
      return Violation(absl::StrCat("frees storage ", id,
                                    ", which does not exist any more"));
    }
  }
  for (const uint64_t id : free.storages()) s.storages.Remove(id);
  return absl::OkStatus();
}

}  // namespace djinn::worker
