// Which member has what, and where a call goes.
#include <algorithm>
#include <string>
#include <utility>

#include "client_lib/session/spanning_device.h"
#include "common/error.h"
#include "common/status_macros.h"

namespace djinn {
namespace {

// What it costs to have a generator somewhere else, in bytes: its state goes
// through this process, which waits for it.
constexpr int64_t kGeneratorCost = 1 << 20;
// What it is worth a message of its own to give back early.
constexpr uint64_t kWorthAMessage = 64 << 10;

}  // namespace

StorageCopies& SpanningDevice::CopiesOf(RemoteStorage* storage) {
  if (storage->copies_ != nullptr) return *storage->copies_;
  // Made before the device began to span.
  auto copies = std::make_unique<StorageCopies>();
  if (first_->IsBorn(*storage)) {
    copies->at_home = true;
    copies->holders = copies->counted = 1;
  } else {
    used_[0].fetch_sub(static_cast<int64_t>(storage->size_bytes()),
                       std::memory_order_relaxed);
  }
  storage->copies_ = copies.release();
  return *storage->copies_;
}

RemoteStorage* SpanningDevice::CopyAt(RemoteStorage* storage, int member) {
  StorageCopies& copies = CopiesOf(storage);
  if (member == 0 && copies.at_home) return storage;
  StoragePtr& copy = copies.at[member];
  if (!copy) {
    copy = StoragePtr(
        new RemoteStorage(/*id=*/0, shared_from_this(), storage->size_bytes()));
  }
  if (!copies.Holds(member)) {
    copy->size_bytes_.store(storage->size_bytes(), std::memory_order_relaxed);
  }
  return copy.get();
}

int SpanningDevice::HomeOf(RemoteStorage* storage) {
  const StorageCopies& copies = CopiesOf(storage);
  return copies.holders != 0 ? copies.owner : last_;
}

absl::StatusOr<SpanningDevice::Choice> SpanningDevice::Choose(
    const Call& call) {
  std::array<int64_t, kMaxMembers> lacks{};  // what would have to come
  std::array<int64_t, kMaxMembers> takes{};  // what it would hold besides
  std::array<int64_t, kMaxMembers> keeps{};  // what a plan has it keep
  int64_t all = 0;
  for (const Touch& touch : call.touches()) {
    StorageCopies& copies = CopiesOf(touch.storage.get());
    const auto size = static_cast<int64_t>(touch.storage->size_bytes());
    if ((touch.access & kDraws) != 0) {
      copies.generator = true;
      // A state whose size is not known here cannot be read.
      if (size == 0) return Choice{copies.owner, false};
    }
    const bool needed =
        copies.holders != 0 &&
        !(IgnoresContents(touch.access) && ChangesVersion(touch.access));
    all += size;
    if (const int keeper = KeeperOf(touch.storage.get()); keeper >= 0) {
      keeps[keeper] += std::max<int64_t>(size, 1);
    }
    for (int member = 0; member < count(); ++member) {
      if (needed && !copies.Holds(member)) {
        lacks[member] += copies.generator ? kGeneratorCost : size;
      }
      if (!copies.Counts(member)) takes[member] += size;
    }
  }
  const auto best = [&](auto fits) {
    int found = -1;
    for (int next = 0; next < count(); ++next) {
      const int member = (last_ + next) % count();
      if (!fits(member)) continue;
      if (found < 0 || lacks[member] < lacks[found]) found = member;
    }
    return found;
  };
  const auto has_room = [&](int member) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return takes[member] == 0 || RoomLeft(member) >= takes[member];
  };
  const auto keeper = std::max_element(keeps.begin(), keeps.end());
  const bool kept = *keeper > 0;
  const int wanted = kept ? static_cast<int>(keeper - keeps.begin())
                          : best([](int) { return true; });
  if (has_room(wanted)) return Choice{wanted, false, kept};
  const int elsewhere = best(has_room);
  if (elsewhere >= 0) return Choice{elsewhere, true};
  const int next = count();
  if (AddMemberPatiently(static_cast<uint64_t>(all))) return Choice{next, true};
  return Choice{wanted, false};
}

int SpanningDevice::ChooseForBytes(uint64_t bytes) {
  const auto size = static_cast<int64_t>(bytes);
  for (int next = 0; next < count(); ++next) {
    const int member = (last_ + next) % count();
    if (RoomLeft(member) >= size) return member;
  }
  const int next = count();
  return AddMemberPatiently(bytes) ? next : last_;
}

absl::Status SpanningDevice::Bring(uint32_t lane, RemoteStorage* storage,
                                   int member, double remaining_seconds) {
  StorageCopies& copies = CopiesOf(storage);
  if (copies.generator) return BringGenerator(lane, storage, member);
  DJINN_ASSIGN_OR_RETURN(const bool made, MakeAgain(lane, storage, member));
  if (made) return absl::OkStatus();
  RemoteStorage* const copy = CopyAt(storage, member);
  // What has no bytes is the same everywhere.
  if (storage->size_bytes() > 0) {
    const uint64_t errors = context_->root_errors.count();
    DJINN_ASSIGN_OR_RETURN(
        PullWork pull,
        members_[copies.owner]->Offer(lane, CopyAt(storage, copies.owner),
                                      kOrdered, {round_, remaining_seconds}));
    DJINN_RETURN_IF_ERROR(
        members_[member]->Pull(lane, copy, std::move(pull), kOrdered));
    copies.BecomeUnsure(member, errors);
  }
  Count(storage, member);
  return absl::OkStatus();
}

absl::StatusOr<bool> SpanningDevice::HasCome(uint32_t lane,
                                             RemoteStorage* storage, int member,
                                             absl::Status* why) {
  const StorageCopies& copies = CopiesOf(storage);
  *why = members_[member]->CheckSound(lane, CopyAt(storage, member));
  if (why->ok() && !copies.Makes(member)) return true;
  if (!why->ok() && !IsRootError(*why)) return *why;
  const int owner = copies.owner;
  const absl::Status there =
      members_[owner]->CheckSound(lane, CopyAt(storage, owner));
  if (why->ok()) {
    // What failed where it was made first is missing, wherever it was made
    // again.
    if (there.ok()) return true;
    if (!IsRootError(there)) return there;
    *why = there;
    return false;
  }
  // What is poisoned comes with its error.
  if (there.ok()) return false;
  if (!IsRootError(there)) return there;
  return ErrorMetadataValue(there, "error_id") ==
         ErrorMetadataValue(*why, "error_id");
}

absl::Status SpanningDevice::MakeSure(uint32_t lane, RemoteStorage* storage,
                                      int member) {
  StorageCopies& copies = CopiesOf(storage);
  if (copies.errors_before == context_->root_errors.count()) {
    return absl::OkStatus();
  }
  absl::Status why;
  DJINN_ASSIGN_OR_RETURN(const bool come, HasCome(lane, storage, member, &why));
  if (come) {
    copies.BecomeSure(member);
    return absl::OkStatus();
  }
  // It is brought again: by a fetch, for there may be no room to make it.
  DropCopy(storage, member);
  copies.recipe = nullptr;
  return absl::OkStatus();
}

absl::StatusOr<absl::InlinedVector<RemoteStorage*, 2>> SpanningDevice::Move(
    uint32_t lane, absl::Span<RemoteStorage* const> storages, int member,
    bool told) {
  absl::InlinedVector<RemoteStorage*, 2> unsound;
  // What was offered takes room where it was until it is fetched, and is
  // given up only when it has arrived.
  DJINN_RETURN_IF_ERROR(members_[member]->CatchUp());
  for (RemoteStorage* const storage : storages) {
    StorageCopies& copies = CopiesOf(storage);
    if (copies.IsUnsure(member)) {
      absl::Status why;
      DJINN_ASSIGN_OR_RETURN(const bool come,
                             HasCome(lane, storage, member, &why));
      if (!come) {
        if (told) context_->root_errors.AddReported(index_, why);
        copies.recipe = nullptr;
        if (copies.Makes(member)) {
          // The failure comes along when it is fetched.
          DropCopy(storage, member);
          DJINN_RETURN_IF_ERROR(Bring(lane, storage, member));
        }
        unsound.push_back(storage);
        continue;
      }
    }
    // The version is the same.
    std::shared_ptr<const Recipe> recipe = std::move(copies.recipe);
    std::shared_ptr<HeldValue> value = std::move(copies.value);
    const absl::Status moved = Wrote(lane, storage, member);
    copies.recipe = std::move(recipe);
    copies.value = std::move(value);
    DJINN_RETURN_IF_ERROR(moved);
    if (copies.kept_by != member) continue;
    // What has no bytes has nothing there that a run could name as yet.
    const uint64_t id = CopyAt(storage, member)->id();
    if (id == 0) continue;
    MutexLock lock(&stages_mu_);
    kept_[id] = copies.placed;
  }
  return unsound;
}

void SpanningDevice::DropCopy(RemoteStorage* storage, int member) {
  StorageCopies& copies = CopiesOf(storage);
  const uint32_t bit = 1u << member;
  if (copies.Counts(member)) {
    used_[member].fetch_sub(static_cast<int64_t>(storage->size_bytes()),
                            std::memory_order_relaxed);
  }
  copies.holders &= ~bit;
  copies.counted &= ~bit;
  copies.BecomeSure(member);
  LetGo(storage, member);
}

void SpanningDevice::LetGo(RemoteStorage* storage, int member) {
  StorageCopies& copies = CopiesOf(storage);
  const bool home = member == 0 && copies.at_home;
  if (plans_.load(std::memory_order_relaxed) > 0) {
    MutexLock lock(&stages_mu_);
    kept_.erase(home ? storage->id() : copies.at[member]->id());
  }
  if (home) {
    // It is the program's until that one dies, and has gone stale.
    copies.at_home = false;
    return;
  }
  members_[member]->MarkDead(copies.at[member].get());
  copies.at[member] = StoragePtr();
}

absl::Status SpanningDevice::BringGenerator(uint32_t lane,
                                            RemoteStorage* storage,
                                            int member) {
  const StorageCopies& copies = CopiesOf(storage);
  const auto state = std::make_shared<std::string>(storage->size_bytes(), '\0');
  srg::TensorView view;
  view.data_type = srg::DataType::kUint8;
  view.sizes = {static_cast<int64_t>(state->size())};
  view.strides = {1};
  DJINN_RETURN_IF_ERROR(
      members_[copies.owner]->Read(lane, CopyAt(storage, copies.owner), view,
                                   state->data(), state->size(), kOrdered));
  // It is a seed that makes a storage a generator.
  RemoteStorage* const copy = CopyAt(storage, member);
  DJINN_RETURN_IF_ERROR(members_[member]->Seed(lane, copy, 0, kOrdered));
  DJINN_RETURN_IF_ERROR(
      members_[member]->Upload(lane, copy, {*state, state}, kOrdered));
  Count(storage, member);
  return absl::OkStatus();
}

void SpanningDevice::Count(RemoteStorage* storage, int member) {
  StorageCopies& copies = CopiesOf(storage);
  if (copies.holders == 0) copies.owner = member;
  copies.holders |= 1u << member;
  if (copies.Counts(member)) return;
  copies.counted |= 1u << member;
  used_[member].fetch_add(static_cast<int64_t>(storage->size_bytes()),
                          std::memory_order_relaxed);
}

absl::Status SpanningDevice::Wrote(uint32_t lane, RemoteStorage* storage,
                                   int member) {
  StorageCopies& copies = CopiesOf(storage);
  copies.holders = 1u << member;
  copies.unsure = copies.makes = 0;
  copies.recipe = nullptr;
  copies.ForgetValue();
  copies.owner = member;
  Count(storage, member);
  return copies.counted == copies.holders ? absl::OkStatus()
                                          : GiveBack(lane, storage);
}

absl::Status SpanningDevice::GiveBack(uint32_t lane, RemoteStorage* storage) {
  StorageCopies& copies = CopiesOf(storage);
  // A generator comes back.
  if (copies.generator) return absl::OkStatus();
  for (int member = 0; member < count(); ++member) {
    if (member == copies.owner || !copies.Counts(member)) continue;
    // What is freed goes behind the next run, which may need its room.
    if (storage->size_bytes() >= kWorthAMessage) {
      DJINN_RETURN_IF_ERROR(
          members_[member]->Discard(lane, CopyAt(storage, member)));
    }
    LetGo(storage, member);
    copies.counted &= ~(1u << member);
    used_[member].fetch_sub(static_cast<int64_t>(storage->size_bytes()),
                            std::memory_order_relaxed);
  }
  return absl::OkStatus();
}

}  // namespace djinn
