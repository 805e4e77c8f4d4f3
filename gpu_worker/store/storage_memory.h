// Memory for the storages of one session, within its quota and the ledger.
//
// Not thread-safe: belongs to whoever executes the session. Errors are what the
// quota, the ledger or the device says; the storage then has the bytes that it
// had.
#ifndef GPU_WORKER_STORE_STORAGE_MEMORY_H_
#define GPU_WORKER_STORE_STORAGE_MEMORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu_worker/store/device_memory.h"
#include "gpu_worker/store/ledger.h"
#include "gpu_worker/store/storage_table.h"

namespace djinn::worker {

class StorageMemory {
 public:
  // Both outlive it.
  StorageMemory(DeviceMemory* memory, SessionQuota* quota, std::string tenant)
      : memory_(memory), quota_(quota), tenant_(std::move(tenant)) {}

  // Zeroed, for the caller to put into the storage, which pays for it; with
  // `prefix`, a copy of its first bytes.
  absl::StatusOr<std::shared_ptr<Buffer>> Allocate(
      Storage* storage, uint64_t bytes, const Buffer* prefix = nullptr);
  // The storage has these bytes from now on. Those of a generator are its
  // state, and checked.
  absl::Status Install(const std::string& bytes, Storage* storage);
  // The storage is a generator from now on, whatever becomes of its state.
  absl::Status Seed(uint64_t seed, Storage* storage);

 private:
  DeviceMemory* const memory_;
  SessionQuota* const quota_;
  const std::string tenant_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_STORE_STORAGE_MEMORY_H_
