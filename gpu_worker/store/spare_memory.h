// Lends a device's spare memory from the ledger.
#ifndef GPU_WORKER_STORE_SPARE_MEMORY_H_
#define GPU_WORKER_STORE_SPARE_MEMORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "gpu_worker/device/device.h"
#include "gpu_worker/store/ledger.h"

namespace djinn::worker {

// Reserves only free memory: it never evicts or reclaims anything. Thread-safe.
class LedgerSpareMemory final : public SpareMemory {
 public:
  // `ledger` must outlive all reservations.
  explicit LedgerSpareMemory(Ledger* ledger) : ledger_(ledger) {}

  std::shared_ptr<void> Reserve(const std::string& tenant,
                                uint64_t bytes) override {
    absl::StatusOr<Reservation> reservation =
        ledger_->Reserve(MemoryClass::kSpare, tenant, bytes);
    if (!reservation.ok()) return nullptr;
    return std::make_shared<Reservation>(*std::move(reservation));
  }

 private:
  Ledger* const ledger_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_STORE_SPARE_MEMORY_H_
