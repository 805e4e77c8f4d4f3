#include "gpu_worker/store/quota.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/saturating.h"
#include "common/base/status_macros.h"

namespace djinn::worker {

void CappedMemory::SetLimits(MemoryLimits limits) {
  MutexLock lock(&mu_);
  limits_ = limits;
  PublishRoom();
}

void CappedMemory::PublishRoom() {
  const auto left = [](uint64_t limit, uint64_t used) {
    return limit - std::min(used, limit);
  };
  const uint64_t own = caches_apart() ? used_[1] : used_[1] + used_[2];
  room_.store(std::min(left(limits_.all, All()), left(limits_.storages, own)),
              std::memory_order_relaxed);
}

uint64_t CappedMemory::limit() const {
  MutexLock lock(&mu_);
  return limits_.all;
}

uint64_t CappedMemory::used() const {
  MutexLock lock(&mu_);
  return All();
}

uint64_t CappedMemory::RoomForContents() const {
  const auto left = [](uint64_t limit, uint64_t used) {
    return limit - std::min(used, limit);
  };
  MutexLock lock(&mu_);
  return std::min(left(limits_.all, All()), left(limits_.contents, used_[0]));
}

CappedMemory::Part CappedMemory::PartOf(StorageClass storage_class) {
  switch (storage_class) {
    case StorageClass::kContent:
      return Part::kContents;
    case StorageClass::kCache:
      return Part::kCaches;
    case StorageClass::kOwn:
    case StorageClass::kGenerator:
      break;
  }
  return Part::kStorages;
}

absl::Status CappedMemory::Check(const char* what, uint64_t limit,
                                 uint64_t before, uint64_t now) const {
  // The limit may have been lowered below what is used.
  if (now <= before || now <= limit) return absl::OkStatus();
  return LimitExceeded(reason_, absl::StrCat("memory of ", owner_, what), limit,
                       before, now - before);
}

absl::Status CappedMemory::CheckParts(
    Part part, const std::array<uint64_t, 3>& before) const {
  const auto [contents, storages, caches] = before;
  if (part == Part::kContents) {
    return Check(" for contents", limits_.contents, contents, used_[0]);
  }
  if (!caches_apart()) {
    return Check(" but for contents", limits_.storages, storages + caches,
                 used_[1] + used_[2]);
  }
  if (part == Part::kCaches) {
    return Check(" for caches", limits_.caches, caches, used_[2]);
  }
  DJINN_RETURN_IF_ERROR(Check(" but for contents and caches", limits_.storages,
                              storages, used_[1]));
  // Caches were found beyond their cap when it was too late to refuse them.
  if (used_[1] > storages && used_[2] > limits_.caches) {
    return LimitExceeded(reason_,
                         absl::StrCat("memory of ", owner_, " for caches"),
                         limits_.caches, used_[2], used_[1] - storages);
  }
  return absl::OkStatus();
}

absl::Status CappedMemory::Change(Amount from, Amount to) {
  MutexLock lock(&mu_);
  const std::array<uint64_t, 3> before = used_;
  const uint64_t all_before = All();
  // The request may be any number. Once the sum does not wrap, nothing below
  // can.
  const uint64_t more = to.bytes > from.bytes ? to.bytes - from.bytes : 0;
  if (more > MemoryLimits::kUnlimited - all_before) {
    return LimitExceeded(reason_, absl::StrCat("memory of ", owner_),
                         limits_.all, all_before, more);
  }
  UsedOf(to.storage_class) += to.bytes;
  UsedOf(from.storage_class) -= from.bytes;
  absl::Status fits = Check("", limits_.all, all_before, All());
  if (fits.ok()) fits = CheckParts(PartOf(to.storage_class), before);
  if (!fits.ok()) used_ = before;
  PublishRoom();
  return fits;
}

uint64_t CappedMemory::Missing(Amount from, Amount to) const {
  const auto above = [](uint64_t used, uint64_t limit) {
    return used - std::min(used, limit);
  };
  MutexLock lock(&mu_);
  std::array<uint64_t, 3> after = used_;
  after[static_cast<size_t>(PartOf(from.storage_class))] -= from.bytes;
  uint64_t& changed = after[static_cast<size_t>(PartOf(to.storage_class))];
  changed = SaturatingSum(changed, to.bytes);
  const auto [contents, storages, caches] = after;
  const uint64_t own =
      caches_apart() ? storages : SaturatingSum(storages, caches);
  return std::max(
      {above(SaturatingSum(SaturatingSum(contents, storages), caches),
             limits_.all),
       above(contents, limits_.contents), above(own, limits_.storages),
       caches_apart() ? above(caches, limits_.caches) : 0});
}

void CappedMemory::Count(Amount from, Amount to) {
  MutexLock lock(&mu_);
  UsedOf(to.storage_class) += to.bytes;
  UsedOf(from.storage_class) -= from.bytes;
  PublishRoom();
}

absl::Status TenantQuota::ChangeOrMakeRoom(Amount from, Amount to) {
  absl::Status changed = Change(from, to);
  while (!changed.ok() && end_lost_ != nullptr &&
         end_lost_(Missing(from, to))) {
    changed = Change(from, to);
  }
  return changed;
}

QuotaShare& QuotaShare::operator=(QuotaShare&& other) noexcept {
  if (this == &other) return *this;
  Release();
  quota_ = std::exchange(other.quota_, nullptr);
  class_ = std::exchange(other.class_, StorageClass::kOwn);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void QuotaShare::Release() {
  if (SessionQuota* const quota = std::exchange(quota_, nullptr)) {
    quota->Count({class_, bytes_}, {class_, 0});
    --quota->Of(class_).count;
  }
  class_ = StorageClass::kOwn;
  bytes_ = 0;
}

void QuotaShare::MoveTo(StorageClass storage_class) {
  if (quota_ != nullptr && storage_class != class_) {
    quota_->Count({class_, bytes_}, {storage_class, bytes_});
    --quota_->Of(class_).count;
    ++quota_->Of(storage_class).count;
  }
  class_ = storage_class;
}

QuotaShare QuotaShare::Split(uint64_t bytes) {
  QuotaShare part;
  part.quota_ = quota_;
  part.class_ = class_;
  part.bytes_ = bytes;
  bytes_ -= bytes;
  ++quota_->Of(class_).count;
  return part;
}

uint64_t SessionQuota::RoomForContents() const {
  const uint64_t room = memory_.RoomForContents();
  return tenant_ == nullptr ? room : std::min(room, tenant_->RoomForContents());
}

absl::StatusOr<QuotaShare> SessionQuota::Reserve(uint64_t bytes,
                                                 StorageClass storage_class) {
  QuotaShare share;
  if (absl::Status status = Resize(&share, bytes, storage_class);
      !status.ok()) {
    return status;
  }
  return share;
}

absl::Status SessionQuota::Resize(QuotaShare* share, uint64_t bytes,
                                  StorageClass storage_class) {
  const CappedMemory::Amount from{share->class_, share->bytes_};
  const CappedMemory::Amount to{storage_class, bytes};
  // Spare shares are released before sessions of clients that are away are
  // ended.
  absl::Status changed = Change(from, to, /*ends_lost=*/false);
  if (!changed.ok()) {
    MakeRoom(Missing(from, to));
    changed = Change(from, to, /*ends_lost=*/true);
  }
  DJINN_RETURN_IF_ERROR(changed);
  if (share->quota_ != nullptr) --Of(from.storage_class).count;
  Of(from.storage_class).bytes -= from.bytes;
  ++Of(to.storage_class).count;
  Of(to.storage_class).bytes += to.bytes;
  share->quota_ = this;
  share->class_ = storage_class;
  share->bytes_ = bytes;
  return absl::OkStatus();
}

absl::Status SessionQuota::Change(CappedMemory::Amount from,
                                  CappedMemory::Amount to, bool ends_lost) {
  DJINN_RETURN_IF_ERROR(memory_.Change(from, to));
  if (tenant_ == nullptr) return absl::OkStatus();
  absl::Status changed = ends_lost ? tenant_->ChangeOrMakeRoom(from, to)
                                   : tenant_->Change(from, to);
  if (!changed.ok()) memory_.Count(to, from);
  return changed;
}

uint64_t SessionQuota::Missing(CappedMemory::Amount from,
                               CappedMemory::Amount to) const {
  const uint64_t missing = memory_.Missing(from, to);
  return tenant_ == nullptr ? missing
                            : std::max(missing, tenant_->Missing(from, to));
}

void SessionQuota::Count(CappedMemory::Amount from, CappedMemory::Amount to) {
  memory_.Count(from, to);
  if (tenant_ != nullptr) tenant_->Count(from, to);
  Of(from.storage_class).bytes -= from.bytes;
  Of(to.storage_class).bytes += to.bytes;
}

QuotaChange::~QuotaChange() {
  if (!changed_) return;
  quota_->Count({share_->class_, share_->bytes_}, before_);
  --quota_->Of(share_->class_).count;
  if (had_share_) ++quota_->Of(before_.storage_class).count;
  share_->quota_ = had_share_ ? quota_ : nullptr;
  share_->class_ = before_.storage_class;
  share_->bytes_ = before_.bytes;
}

absl::Status QuotaChange::To(uint64_t bytes, StorageClass storage_class) {
  had_share_ = share_->quota_ != nullptr;
  before_ = {share_->class_, share_->bytes_};
  DJINN_RETURN_IF_ERROR(quota_->Resize(share_, bytes, storage_class));
  changed_ = true;
  return absl::OkStatus();
}

SessionQuota::ClassUse SessionQuota::used(StorageClass storage_class) const {
  const ClassCounters& counters = by_class_[static_cast<size_t>(storage_class)];
  return {counters.count.load(std::memory_order_relaxed),
          counters.bytes.load(std::memory_order_relaxed)};
}

}  // namespace djinn::worker
