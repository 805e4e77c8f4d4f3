// Allocates device memory with the ledger's consent. A buffer from here carries
// its reservation: the bytes return to the ledger when the last reference to
// the buffer goes.
//
// When the ledger refuses, DeviceMemory calls a reclaimer once for the bytes
// that are missing, and asks the ledger again. The worker's reclaimer is
// memory_relief.h. Thread-safe.
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
  // Frees up to `bytes` that are not in use. Called by the allocating thread,
  // without the ledger's lock.
  using Reclaimer = std::function<void(uint64_t bytes)>;

  // Both must outlive this and all buffers.
  DeviceMemory(Device* device, Ledger* ledger)
      : device_(device), ledger_(ledger) {}

  // Call it while no thread allocates. The reclaimer is optional.
  void SetReclaimer(Reclaimer reclaimer) { reclaimer_ = std::move(reclaimer); }

  Device* device() const { return device_; }
  Ledger* ledger() const { return ledger_; }

  // Returns RESOURCE_EXHAUSTED from the ledger or the device; then nothing was
  // allocated.
  absl::StatusOr<std::shared_ptr<Buffer>> Allocate(const std::string& tenant,
                                                   uint64_t bytes);
  // Returns a private buffer of `bytes`: a copy of the first bytes of `source`,
  // then zeros.
  absl::StatusOr<std::shared_ptr<Buffer>> Clone(const std::string& tenant,
                                                const Buffer& source,
                                                uint64_t bytes);

  absl::StatusOr<Reservation> Reserve(MemoryClass memory_class,
                                      const std::string& tenant,
                                      uint64_t bytes);
  // Frees up to `bytes` that are not in use, for a call that lacked memory of
  // the device's own.
  void Relieve(uint64_t bytes);
  // Joins a buffer with the reservation that accounts for it.
  static std::shared_ptr<Buffer> Track(
      std::shared_ptr<Buffer> buffer, std::shared_ptr<Reservation> reservation);

 private:
  Device* const device_;
  Ledger* const ledger_;
  Reclaimer reclaimer_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_STORE_DEVICE_MEMORY_H_
