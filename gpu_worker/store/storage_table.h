// Keeps the storages of one session on this worker, by the id that the client
// chose.
//
// Not thread-safe: the thread that executes the session owns it.
#ifndef GPU_WORKER_STORE_STORAGE_TABLE_H_
#define GPU_WORKER_STORE_STORAGE_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "djinn/v1/types.pb.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/store/model_share.h"
#include "gpu_worker/store/quota.h"

namespace djinn::worker {

// A root error, shared by everything that derives from it.
using RootError = std::shared_ptr<const v1::ErrorDetail>;

struct Storage {
  // Null until a zero-filled buffer is needed, and when the storage's creation
  // failed.
  std::shared_ptr<Buffer> buffer;
  QuotaShare quota;
  uint64_t version = 0;
  // The size of `buffer`, or the size that it would have.
  uint64_t size_bytes = 0;
  // False when the creation failed and only the operator would have determined
  // the size.
  bool size_known = true;
  // State of a random number generator; never poisoned once it has a buffer.
  bool generator = false;
  // The client keeps it for one other worker to fetch (v1::StorageCopy).
  bool kept_copy = false;
  // Null when the contents are good.
  RootError poison;
  // Shares of the models that name the storage; null when no model ever did.
  std::unique_ptr<std::vector<ModelShare>> models;

  void Count(ModelShare share);
};

// Remembers ids that must not be used again, as ranges, because ids are dense
// in practice. Beyond `max_ranges` the gaps between the oldest ids count as
// used as well.
class UsedIds {
 public:
  explicit UsedIds(size_t max_ranges = 65536) : max_ranges_(max_ranges) {}

  bool Contains(uint64_t id) const;
  void Insert(uint64_t id);
  size_t ranges() const { return ranges_.size(); }

 private:
  const size_t max_ranges_;
  // First id → last id of each range; ranges neither touch nor overlap.
  std::map<uint64_t, uint64_t> ranges_;
};

class StorageTable {
 public:
  // Returns the storage, which stays valid until Remove(), or null.
  Storage* Find(uint64_t id) const;
  // Returns whether the id names a storage or did before.
  bool Used(uint64_t id) const { return used_.Contains(id); }
  // Creates the storage. The id must not have been used before.
  Storage* Create(uint64_t id);
  // Marks an unused id as used, for a storage that never enters the table.
  void MarkUsed(uint64_t id) { used_.Insert(id); }
  // Removes the storage; returns false when there is none.
  bool Remove(uint64_t id) { return storages_.erase(id) > 0; }
  size_t size() const { return storages_.size(); }
  // Returns the ids in order.
  std::vector<uint64_t> ids() const;
  void Clear() { storages_.clear(); }

 private:
  absl::flat_hash_map<uint64_t, std::unique_ptr<Storage>> storages_;
  UsedIds used_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_STORE_STORAGE_TABLE_H_
