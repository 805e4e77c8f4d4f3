// Gives memory to the storages of one session, within its quota and the ledger.
//
// Not thread-safe: the thread that executes the session owns it. Errors are
// those of the quota, the ledger or the device; after an error the storage has
// the bytes that it had before.
#ifndef GPU_WORKER_STORE_STORAGE_MEMORY_H_
#define GPU_WORKER_STORE_STORAGE_MEMORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu_worker/store/device_memory.h"
#include "gpu_worker/store/quota.h"
#include "gpu_worker/store/storage_table.h"

namespace djinn::worker {

class StorageMemory {
 public:
  // Both pointers must outlive this.
  StorageMemory(DeviceMemory* memory, SessionQuota* quota, std::string tenant)
      : memory_(memory), quota_(quota), tenant_(std::move(tenant)) {}

  // Returns a zero-filled buffer, charged to the storage, for the caller to put
  // into the storage. With `prefix`, it begins with a copy of that buffer's
  // first bytes.
  absl::StatusOr<std::shared_ptr<Buffer>> Allocate(
      Storage* storage, uint64_t bytes, const Buffer* prefix = nullptr);
  // Gives the storage these bytes. For a generator they are its state, which is
  // checked.
  absl::Status Install(const std::string& bytes, Storage* storage);
  // Makes the storage a generator, even if its state cannot be set.
  absl::Status Seed(uint64_t seed, Storage* storage);

 private:
  DeviceMemory* const memory_;
  SessionQuota* const quota_;
  const std::string tenant_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_STORE_STORAGE_MEMORY_H_
