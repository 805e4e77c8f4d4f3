#include "gpu_worker/memory/ledger.h"

#include <utility>

#include "common/error.h"

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

uint64_t Ledger::TenantBytes(const std::string& tenant) const {
  MutexLock lock(&mu_);
  const auto found = by_tenant_.find(tenant);
  return found == by_tenant_.end() ? 0 : found->second;
}

absl::Status TenantQuota::Take(uint64_t bytes) {
  const uint64_t limit = limit_;
  uint64_t used = used_;
  do {
    // The limit may have been lowered below what is used.
    if (used > limit || bytes > limit - used) {
      return LimitExceeded("TENANT_MEMORY", "memory of the tenant's sessions",
                           limit, used, bytes);
    }
  } while (!used_.compare_exchange_weak(used, used + bytes));
  return absl::OkStatus();
}

void SessionQuota::Give(uint64_t bytes) {
  used_ -= bytes;
  if (tenant_ != nullptr) tenant_->Give(bytes);
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
  MoveTo(StorageClass::kOwn);
  if (quota_ == nullptr) return;
  --quota_->Of(class_).count;
  quota_->Of(class_).bytes -= bytes_;
  std::exchange(quota_, nullptr)->Give(std::exchange(bytes_, 0));
}

void QuotaShare::MoveTo(StorageClass storage_class) {
  if (quota_ != nullptr) {
    --quota_->Of(class_).count;
    quota_->Of(class_).bytes -= bytes_;
    ++quota_->Of(storage_class).count;
    quota_->Of(storage_class).bytes += bytes_;
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
  if (absl::Status status = Resize(&share, bytes); !status.ok()) return status;
  return share;
}

absl::Status SessionQuota::Resize(QuotaShare* share, uint64_t bytes) {
  const uint64_t others = used_ - share->bytes_;
  const uint64_t limit = limit_;
  if (bytes > share->bytes_ && (others > limit || bytes > limit - others)) {
    return LimitExceeded("SESSION_MEMORY", "session memory", limit, used_,
                         bytes);
  }
  if (bytes > share->bytes_) {
    if (tenant_ != nullptr) {
      absl::Status taken = tenant_->Take(bytes - share->bytes_);
      if (!taken.ok()) return taken;
    }
    used_ += bytes - share->bytes_;
  } else {
    Give(share->bytes_ - bytes);
  }
  ClassCounters& counters = Of(share->class_);
  counters.bytes += bytes - share->bytes_;
  if (share->quota_ == nullptr) ++counters.count;
  share->quota_ = this;
  share->bytes_ = bytes;
  return absl::OkStatus();
}

SessionQuota::ClassUse SessionQuota::used(StorageClass storage_class) const {
  const ClassCounters& counters = by_class_[static_cast<size_t>(storage_class)];
  return {counters.count.load(std::memory_order_relaxed),
          counters.bytes.load(std::memory_order_relaxed)};
}

}  // namespace djinn::worker
