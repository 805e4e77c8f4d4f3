#include "gpu_worker/store/ledger.h"

#include <utility>

#include "absl/time/time.h"
#include "common/base/error.h"
#include "common/base/retry_after.h"

namespace djinn::worker {
namespace {

// When others may have given memory back.
constexpr absl::Duration kRetryForMemory = absl::Seconds(1);

}  // namespace

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
    // Names what the tenant uses, because the sum would tell it about others.
    const auto own = by_tenant_.find(tenant);
    absl::Status full =
        LimitExceeded("DEVICE_MEMORY", "device memory (used: by this tenant)",
                      limit_, own == by_tenant_.end() ? 0 : own->second, bytes);
    return bytes > limit_ ? full
                          : WithRetryAfter(std::move(full), kRetryForMemory);
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

}  // namespace djinn::worker
