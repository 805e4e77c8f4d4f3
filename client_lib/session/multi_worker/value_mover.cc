#include "client_lib/session/multi_worker/value_mover.h"

#include <memory>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn {

bool IsRootError(const absl::Status& status) {
  return !ErrorMetadataValue(status, "error_id").empty();
}

absl::Status ValueMover::Send(uint32_t lane, RemoteStorage* storage, int from,
                              RemoteStorage* copy, int to,
                              double remaining_seconds) {
  DJINN_ASSIGN_OR_RETURN(
      PullWork pull, workers_->at(from).Offer(
                         lane, storage, {rounds_->round(), remaining_seconds}));
  return workers_->at(to).Pull(lane, copy, std::move(pull));
}

absl::Status ValueMover::Bring(uint32_t lane, RemoteStorage* storage,
                               int member, double remaining_seconds) {
  StorageCopies& copies = table_->CopiesOf(storage);
  if (copies.generator) return BringGenerator(lane, storage, member);
  DJINN_ASSIGN_OR_RETURN(const bool made,
                         rematerializer_.TryMake(lane, storage, member));
  if (made) return absl::OkStatus();
  RemoteStorage* const copy = table_->CopyAt(storage, member);
  // A storage without bytes is the same everywhere.
  if (storage->size_bytes() > 0) {
    const uint64_t errors = context_->root_errors.count();
    DJINN_RETURN_IF_ERROR(Send(lane, table_->CopyAt(storage, copies.owner),
                               copies.owner, copy, member, remaining_seconds));
    copies.BecomeUnsure(member, errors);
  }
  table_->Count(storage, member);
  return absl::OkStatus();
}

absl::Status ValueMover::BringWhole(uint32_t lane, RemoteStorage* storage,
                                    int member) {
  const StorageCopies& copies = table_->CopiesOf(storage);
  if (copies.IsUnsure(member)) {
    DJINN_RETURN_IF_ERROR(MakeSure(lane, storage, member));
  }
  if (copies.holders == 0 || copies.Holds(member)) return absl::OkStatus();
  return Bring(lane, storage, member);
}

absl::Status ValueMover::MakeSure(uint32_t lane, RemoteStorage* storage,
                                  int member) {
  StorageCopies& copies = table_->CopiesOf(storage);
  if (copies.errors_before == context_->root_errors.count()) {
    return absl::OkStatus();
  }
  absl::Status why;
  DJINN_ASSIGN_OR_RETURN(const bool come, HasCome(lane, storage, member, &why));
  if (come) {
    copies.BecomeSure(member);
    return absl::OkStatus();
  }
  // The value is moved once more, by a fetch, because there may be no room to
  // rematerialize it.
  table_->DropCopy(storage, member);
  copies.rematerialization = nullptr;
  return absl::OkStatus();
}

absl::StatusOr<absl::InlinedVector<RemoteStorage*, 2>> ValueMover::Move(
    uint32_t lane, absl::Span<RemoteStorage* const> storages, int member,
    bool told) {
  absl::InlinedVector<RemoteStorage*, 2> unsound;
  // An offered value takes room at its source until it is fetched. The storage
  // is therefore given up only when the value has arrived.
  DJINN_RETURN_IF_ERROR(workers_->at(member).CatchUp());
  for (RemoteStorage* const storage : storages) {
    StorageCopies& copies = table_->CopiesOf(storage);
    if (copies.IsUnsure(member)) {
      absl::Status why;
      DJINN_ASSIGN_OR_RETURN(const bool come,
                             HasCome(lane, storage, member, &why));
      if (!come) {
        if (told) context_->root_errors.AddReported(workers_->index(), why);
        copies.rematerialization = nullptr;
        if (copies.Makes(member)) {
          // A fetch brings the failure along.
          table_->DropCopy(storage, member);
          DJINN_RETURN_IF_ERROR(Bring(lane, storage, member));
        }
        unsound.push_back(storage);
        continue;
      }
    }
    // The version stays the same.
    std::shared_ptr<const Rematerialization> rematerialization =
        std::move(copies.rematerialization);
    std::shared_ptr<HeldValue> value = std::move(copies.value);
    const absl::Status moved = table_->Wrote(lane, storage, member);
    copies.rematerialization = std::move(rematerialization);
    copies.value = std::move(value);
    DJINN_RETURN_IF_ERROR(moved);
    if (copies.kept_by != member) continue;
    plans_->Keep(*table_->CopyAt(storage, member), copies.placed);
  }
  return unsound;
}

absl::StatusOr<bool> ValueMover::HasCome(uint32_t lane, RemoteStorage* storage,
                                         int member, absl::Status* why) {
  const StorageCopies& copies = table_->CopiesOf(storage);
  *why = workers_->at(member).CheckSound(lane, table_->CopyAt(storage, member));
  if (why->ok() && !copies.Makes(member)) return true;
  if (!why->ok() && !IsRootError(*why)) return *why;
  const int owner = copies.owner;
  const absl::Status there =
      workers_->at(owner).CheckSound(lane, table_->CopyAt(storage, owner));
  if (why->ok()) {
    // A value that failed where it was first computed is missing on every
    // replica that rematerialized it.
    if (there.ok()) return true;
    if (!IsRootError(there)) return there;
    *why = there;
    return false;
  }
  // A poisoned value brings its error along.
  if (there.ok()) return false;
  if (!IsRootError(there)) return there;
  return ErrorMetadataValue(there, "error_id") ==
         ErrorMetadataValue(*why, "error_id");
}

absl::Status ValueMover::BringGenerator(uint32_t lane, RemoteStorage* storage,
                                        int member) {
  const StorageCopies& copies = table_->CopiesOf(storage);
  const auto state = std::make_shared<std::string>(storage->size_bytes(), '\0');
  srg::TensorView view;
  view.data_type = srg::DataType::kUint8;
  view.sizes = {static_cast<int64_t>(state->size())};
  view.strides = {1};
  DJINN_RETURN_IF_ERROR(workers_->at(copies.owner)
                            .Read(lane, table_->CopyAt(storage, copies.owner),
                                  view, state->data(), state->size()));
  // A seed makes the storage a generator.
  RemoteStorage* const copy = table_->CopyAt(storage, member);
  DJINN_RETURN_IF_ERROR(workers_->at(member).Seed(lane, copy, 0));
  DJINN_RETURN_IF_ERROR(
      workers_->at(member).Upload(lane, copy, {*state, state}));
  table_->Count(storage, member);
  return absl::OkStatus();
}

}  // namespace djinn
