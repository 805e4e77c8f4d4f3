#include "gpu_worker/store/device_memory.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"

namespace djinn::worker {

absl::StatusOr<Reservation> DeviceMemory::Reserve(MemoryClass memory_class,
                                                  const std::string& tenant,
                                                  uint64_t bytes) {
  absl::StatusOr<Reservation> reservation =
      ledger_->Reserve(memory_class, tenant, bytes);
  if (reservation.ok() || !reclaimer_) return reservation;
  const Ledger::Usage usage = ledger_->usage();
  if (bytes > usage.limit) return reservation;
  const uint64_t free = usage.limit - usage.used;
  if (bytes > free) reclaimer_(bytes - free);
  return ledger_->Reserve(memory_class, tenant, bytes);
}

absl::StatusOr<std::shared_ptr<Buffer>> DeviceMemory::Allocate(
    const std::string& tenant, uint64_t bytes) {
  DJINN_ASSIGN_OR_RETURN(Reservation reservation,
                         Reserve(MemoryClass::kStorages, tenant, bytes));
  DJINN_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> buffer,
                         device_->Allocate(bytes));
  return Track(std::move(buffer),
               std::make_shared<Reservation>(std::move(reservation)));
}

absl::StatusOr<std::shared_ptr<Buffer>> DeviceMemory::Clone(
    const std::string& tenant, const Buffer& source, uint64_t bytes) {
  DJINN_ASSIGN_OR_RETURN(Reservation reservation,
                         Reserve(MemoryClass::kStorages, tenant, bytes));
  DJINN_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> buffer,
                         device_->Clone(source, bytes));
  return Track(std::move(buffer),
               std::make_shared<Reservation>(std::move(reservation)));
}

void DeviceMemory::Relieve(uint64_t bytes) {
  if (reclaimer_) reclaimer_(std::min(bytes, ledger_->usage().limit));
  device_->ReleaseUnusedMemory();
}

std::shared_ptr<Buffer> DeviceMemory::Track(
    std::shared_ptr<Buffer> buffer, std::shared_ptr<Reservation> reservation) {
  // Fields are destroyed in reverse order: the memory goes before its bytes
  // count as free.
  struct Tracked {
    std::shared_ptr<Reservation> reservation;
    std::shared_ptr<Buffer> buffer;
  };
  auto tracked = std::make_shared<Tracked>(
      Tracked{std::move(reservation), std::move(buffer)});
  Buffer* const plain = tracked->buffer.get();
  return std::shared_ptr<Buffer>(std::move(tracked), plain);
}

}  // namespace djinn::worker
