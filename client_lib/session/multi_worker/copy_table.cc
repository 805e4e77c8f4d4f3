#include "client_lib/session/multi_worker/copy_table.h"

#include <memory>
#include <utility>

#include "common/base/status_macros.h"

namespace djinn {
namespace {

// Least size of a copy that justifies a message of its own to free it early.
constexpr uint64_t kWorthAMessage = 64 << 10;

}  // namespace

StorageCopies& CopyTable::CopiesOf(RemoteStorage* storage) {
  if (StorageCopies* const known = StorageCopies::Of(*storage)) return *known;
  // The storage was made while the device had one worker.
  auto copies = std::make_unique<StorageCopies>();
  if (workers_->first().IsCreated(*storage)) {
    copies->at_home = true;
    copies->holders = copies->counted = 1;
  } else {
    workers_->TakeUsed(0, storage->size_bytes());
  }
  StorageCopies& made = *copies;
  storage->set_extension(std::move(copies));
  return made;
}

RemoteStorage* CopyTable::CopyAt(RemoteStorage* storage, int member) {
  StorageCopies& copies = CopiesOf(storage);
  if (member == 0 && copies.at_home) return storage;
  StoragePtr& copy = copies.at[member];
  if (!copy) copy = NewPart(storage->size_bytes());
  if (!copies.Holds(member)) copy->set_size_bytes(storage->size_bytes());
  return copy.get();
}

StoragePtr CopyTable::NewPart(uint64_t bytes) {
  return StoragePtr(
      new RemoteStorage(/*id=*/0, owner_->shared_from_this(), bytes));
}

int CopyTable::HomeOf(RemoteStorage* storage) {
  const StorageCopies& copies = CopiesOf(storage);
  return copies.holders != 0 ? copies.owner : last_;
}

void CopyTable::Count(RemoteStorage* storage, int member) {
  StorageCopies& copies = CopiesOf(storage);
  if (copies.holders == 0) copies.owner = member;
  copies.holders |= 1u << member;
  if (copies.Counts(member)) return;
  copies.counted |= 1u << member;
  workers_->AddUsed(member, static_cast<int64_t>(storage->size_bytes()));
}

absl::Status CopyTable::Wrote(uint32_t lane, RemoteStorage* storage,
                              int member) {
  StorageCopies& copies = CopiesOf(storage);
  copies.holders = 1u << member;
  copies.unsure = copies.makes = 0;
  copies.rematerialization = nullptr;
  copies.ForgetValue();
  copies.owner = member;
  Count(storage, member);
  return copies.counted == copies.holders ? absl::OkStatus()
                                          : GiveBack(lane, storage);
}

void CopyTable::Resized(RemoteStorage* storage, uint64_t before,
                        uint64_t size_bytes) {
  const StorageCopies& copies = CopiesOf(storage);
  for (int member = 0; member < workers_->count(); ++member) {
    if (!copies.Counts(member)) continue;
    workers_->AddUsed(member, static_cast<int64_t>(size_bytes) -
                                  static_cast<int64_t>(before));
  }
  storage->set_size_bytes(size_bytes);
}

void CopyTable::DropCopy(RemoteStorage* storage, int member) {
  StorageCopies& copies = CopiesOf(storage);
  const uint32_t bit = 1u << member;
  if (copies.Counts(member)) workers_->TakeUsed(member, storage->size_bytes());
  copies.holders &= ~bit;
  copies.counted &= ~bit;
  copies.BecomeSure(member);
  LetGo(storage, member);
}

void CopyTable::LetGo(RemoteStorage* storage, int member) {
  StorageCopies& copies = CopiesOf(storage);
  const bool home = member == 0 && copies.at_home;
  plans_->Forget(home ? *storage : *copies.at[member].get());
  if (home) {
    // The copy is the program's storage itself, which stays alive with a stale
    // value.
    copies.at_home = false;
    return;
  }
  workers_->at(member).MarkDead(copies.at[member].get());
  copies.at[member] = StoragePtr();
}

absl::Status CopyTable::GiveBack(uint32_t lane, RemoteStorage* storage) {
  StorageCopies& copies = CopiesOf(storage);
  // A generator's copies are used again.
  if (copies.generator) return absl::OkStatus();
  for (int member = 0; member < workers_->count(); ++member) {
    if (member == copies.owner || !copies.Counts(member)) continue;
    // Frees follow the next run, which may need the room.
    if (storage->size_bytes() >= kWorthAMessage) {
      DJINN_RETURN_IF_ERROR(
          workers_->at(member).Discard(lane, CopyAt(storage, member)));
    }
    LetGo(storage, member);
    copies.counted &= ~(1u << member);
    workers_->TakeUsed(member, storage->size_bytes());
  }
  return absl::OkStatus();
}

void CopyTable::ForgetKeeper(RemoteStorage* storage) {
  StorageCopies& copies = CopiesOf(storage);
  copies.kept_by = -1;
  copies.placed = PlacedSlot();
  plans_->ForgetCopies(*storage, copies);
}

void CopyTable::Destroy(RemoteStorage* storage, WorkerSet* workers,
                        StagePlans* plans) {
  const StorageCopies& copies = *StorageCopies::Of(*storage);
  if (copies.kept_by >= 0 || copies.plans != plans->count()) {
    plans->ForgetCopies(*storage, copies);
  }
  for (int member = 0; member < workers->count(); ++member) {
    if (copies.Counts(member)) workers->TakeUsed(member, storage->size_bytes());
    if (copies.at[member]) {
      workers->at(member).MarkDead(copies.at[member].get());
    }
  }
  workers->first().MarkDead(storage);
}

}  // namespace djinn
