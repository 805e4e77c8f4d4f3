// Allocation on the device with the ledger's consent. A buffer that comes from
// here carries its reservation: the bytes return to the ledger when the last
// reference goes, whoever holds it.
//
// When the ledger refuses, a reclaimer is asked once to make room: of spare
// memory first, then of contents that nobody uses. Thread-safe.
#ifndef GPU_WORKER_STORE_DEVICE_MEMORY_H_
#define GPU_WORKER_STORE_DEVICE_MEMORY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/store/ledger.h"

namespace djinn::worker {

class DeviceMemory {
 public:
  // Frees up to `bytes` that are not in use.
  using Reclaimer = std::function<void(uint64_t bytes)>;

  // Both must outlive this and all buffers.
  DeviceMemory(Device* device, Ledger* ledger)
      : device_(device), ledger_(ledger) {}

  // Before first use; may be left unset.
  void SetReclaimer(Reclaimer reclaimer) { reclaimer_ = std::move(reclaimer); }

  Device* device() const { return device_; }
  Ledger* ledger() const { return ledger_; }

  // RESOURCE_EXHAUSTED as the ledger or the device says; nothing was allocated.
  absl::StatusOr<std::shared_ptr<Buffer>> Allocate(const std::string& tenant,
                                                   uint64_t bytes);
  // A private copy of the first bytes of `source`, zero-filled behind.
  absl::StatusOr<std::shared_ptr<Buffer>> Clone(const std::string& tenant,
                                                const Buffer& source,
                                                uint64_t bytes);

  absl::StatusOr<Reservation> Reserve(MemoryClass memory_class,
                                      const std::string& tenant,
                                      uint64_t bytes);
  // Joins a buffer and the reservation that pays for it.
  static std::shared_ptr<Buffer> Track(
      std::shared_ptr<Buffer> buffer, std::shared_ptr<Reservation> reservation);

 private:
  Device* const device_;
  Ledger* const ledger_;
  Reclaimer reclaimer_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_STORE_DEVICE_MEMORY_H_
