#include "gpu_worker/store/memory_relief.h"

#include <algorithm>

#include "gpu_worker/store/ledger.h"

namespace djinn::worker {

MemoryRelief::MemoryRelief(DeviceMemory* memory, ContentCache* contents,
                           std::function<void()> changed,
                           std::function<bool(uint64_t missing)> end_lost)
    : memory_(*memory),
      contents_(*contents),
      changed_(std::move(changed)),
      end_lost_(std::move(end_lost)) {
  memory_.device()->SetSpareMemory(this);
  memory_.SetReclaimer([this](uint64_t bytes) { MakeRoom(bytes); });
}

MemoryRelief::~MemoryRelief() {
  memory_.SetReclaimer(nullptr);
  memory_.device()->SetSpareMemory(nullptr);
}

void MemoryRelief::MakeRoom(uint64_t bytes) {
  const Ledger& ledger = *memory_.ledger();
  // The use of the device with room for the allocation.
  const uint64_t most =
      ledger.usage().used - std::min(ledger.usage().used, bytes);
  const auto missing = [&] {
    const uint64_t used = ledger.usage().used;
    return used > most ? used - most : 0;
  };
  const uint64_t spare = memory_.device()->ReleaseSpareMemory(bytes);
  if (spare < bytes) contents_.EvictIdle(bytes - spare);
  for (uint64_t left = missing(); left > 0 && end_lost_(left);
       left = missing()) {
    if (missing() > 0) contents_.EvictIdle(missing());
  }
  changed_();
}

void MemoryRelief::KeepHouse() {
  const Ledger& ledger = *memory_.ledger();
  const uint64_t idle = contents_.stats().idle_bytes;
  const uint64_t most = memory_.device()->memory_bytes() / 2;
  const uint64_t excess = std::max(idle > most ? idle - most : 0,
                                   ledger.usage().Above(kHighPressure));
  if (excess > 0 && idle > 0) {
    contents_.EvictIdle(excess);
    changed_();
  }
  // Those contents may be enough to end the pressure.
  const uint64_t spare = ledger.usage().Above(kCriticalPressure);
  if (spare > 0) memory_.device()->ReleaseSpareMemory(spare);
}

std::shared_ptr<void> MemoryRelief::Reserve(const std::string& tenant,
                                            uint64_t bytes) {
  absl::StatusOr<Reservation> reservation =
      memory_.ledger()->Reserve(MemoryClass::kSpare, tenant, bytes);
  if (!reservation.ok()) return nullptr;
  return std::make_shared<Reservation>(*std::move(reservation));
}

}  // namespace djinn::worker
