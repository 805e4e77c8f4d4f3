#include "gpu_worker/memory/ledger.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "common/status_macros.h"

namespace djinn::worker {

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this == &other) return *this;
  Release();
  ledger_ = std::exchange(other.ledger_, nullptr);
  class_ = other.class_;
  tenant_ = std::move(other.tenant_);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void Reservation::Release() {
  if (ledger_ == nullptr) return;
  std::exchange(ledger_, nullptr)
      ->Give(class_, tenant_, std::exchange(bytes_, 0));
}

absl::Status Reservation::Resize(uint64_t bytes) {
  if (bytes > bytes_) {
    absl::Status taken = ledger_->Take(class_, tenant_, bytes - bytes_);
    if (!taken.ok()) return taken;
  } else {
    ledger_->Give(class_, tenant_, bytes_ - bytes);
  }
  bytes_ = bytes;
  return absl::OkStatus();
}

void Reservation::MoveTo(MemoryClass memory_class) {
  if (ledger_ == nullptr) return;
  MutexLock lock(&ledger_->mu_);
  ledger_->by_class_[static_cast<size_t>(class_)] -= bytes_;
  ledger_->by_class_[static_cast<size_t>(memory_class)] += bytes_;
  class_ = memory_class;
}

Reservation Reservation::Split(uint64_t bytes) {
  Reservation part;
  part.ledger_ = ledger_;
  part.class_ = class_;
  part.tenant_ = tenant_;
  part.bytes_ = bytes;
  bytes_ -= bytes;
  return part;
}

absl::StatusOr<Reservation> Ledger::Reserve(MemoryClass memory_class,
                                            const std::string& tenant,
                                            uint64_t bytes) {
  if (absl::Status taken = Take(memory_class, tenant, bytes); !taken.ok()) {
    return taken;
  }
  Reservation reservation;
  reservation.ledger_ = this;
  reservation.class_ = memory_class;
  reservation.tenant_ = tenant;
  reservation.bytes_ = bytes;
  return reservation;
}

absl::Status Ledger::Take(MemoryClass memory_class, const std::string& tenant,
                          uint64_t bytes) {
  MutexLock lock(&mu_);
  // used_ never exceeds limit_, so this cannot wrap.
  if (bytes > limit_ - used_) {
    return LimitExceeded("DEVICE_MEMORY", "device memory", limit_, used_,
                         bytes);
  }
  used_ += bytes;
  by_class_[static_cast<size_t>(memory_class)] += bytes;
  if (bytes != 0) by_tenant_[tenant] += bytes;
  return absl::OkStatus();
}

void Ledger::Give(MemoryClass memory_class, const std::string& tenant,
                  uint64_t bytes) {
  if (bytes == 0) return;
  MutexLock lock(&mu_);
  used_ -= bytes;
  by_class_[static_cast<size_t>(memory_class)] -= bytes;
  const auto found = by_tenant_.find(tenant);
  found->second -= bytes;
  if (found->second == 0) by_tenant_.erase(found);
}

Ledger::Usage Ledger::usage() const {
  MutexLock lock(&mu_);
  return {limit_, used_, by_class_};
}

absl::flat_hash_map<std::string, uint64_t> Ledger::by_tenant() const {
  MutexLock lock(&mu_);
  return by_tenant_;
}

void CappedMemory::SetLimits(MemoryLimits limits) {
  all_.limit = limits.all;
  contents_.limit = limits.contents;
  storages_.limit = limits.storages;
}

absl::Status CappedMemory::Take(Cap* cap, const char* what, uint64_t bytes) {
  const uint64_t limit = cap->limit;
  uint64_t used = cap->used;
  do {
    // The limit may have been lowered below what is used.
    if (bytes > 0 && (used > limit || bytes > limit - used)) {
      return LimitExceeded(reason_, absl::StrCat("memory of ", owner_, what),
                           limit, used, bytes);
    }
  } while (!cap->used.compare_exchange_weak(used, used + bytes));
  return absl::OkStatus();
}

absl::Status CappedMemory::Change(Amount from, Amount to) {
  Cap& had = PartOf(from.storage_class);
  Cap& has = PartOf(to.storage_class);
  const uint64_t kept = &had == &has ? std::min(from.bytes, to.bytes) : 0;
  const uint64_t more = to.bytes > from.bytes ? to.bytes - from.bytes : 0;
  DJINN_RETURN_IF_ERROR(Take(&all_, "", more));
  if (absl::Status taken =
          Take(&has, &has == &contents_ ? " for contents" : " but for contents",
               to.bytes - kept);
      !taken.ok()) {
    all_.used -= more;
    return taken;
  }
  had.used -= from.bytes - kept;
  all_.used -= from.bytes + more - to.bytes;
  return absl::OkStatus();
}

void CappedMemory::Count(Amount from, Amount to) {
  PartOf(to.storage_class).used += to.bytes;
  PartOf(from.storage_class).used -= from.bytes;
  all_.used += to.bytes;
  all_.used -= from.bytes;
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

absl::StatusOr<QuotaShare> SessionQuota::Reserve(uint64_t bytes) {
  QuotaShare share;
  if (absl::Status status = Resize(&share, bytes, StorageClass::kOwn);
      !status.ok()) {
    return status;
  }
  return share;
}

absl::Status SessionQuota::Resize(QuotaShare* share, uint64_t bytes,
                                  StorageClass storage_class) {
  const CappedMemory::Amount from{share->class_, share->bytes_};
  const CappedMemory::Amount to{storage_class, bytes};
  DJINN_RETURN_IF_ERROR(memory_.Change(from, to));
  if (tenant_ != nullptr) {
    if (absl::Status changed = tenant_->Change(from, to); !changed.ok()) {
      memory_.Count(to, from);
      return changed;
    }
  }
  if (share->quota_ != nullptr) --Of(from.storage_class).count;
  Of(from.storage_class).bytes -= from.bytes;
  ++Of(to.storage_class).count;
  Of(to.storage_class).bytes += to.bytes;
  share->quota_ = this;
  share->class_ = storage_class;
  share->bytes_ = bytes;
  return absl::OkStatus();
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
