// The storages of a session that share their memory with the storage that they
// were copied from (v1::StorageCopy). They take none of the session's quota
// until the two have different bytes, or only the copy is left.
//
// Not thread-safe: the thread that executes the session owns it.
#ifndef GPU_WORKER_SESSION_STATE_SHARED_COPIES_H_
#define GPU_WORKER_SESSION_STATE_SHARED_COPIES_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "gpu_worker/store/quota.h"
#include "gpu_worker/store/root_errors.h"
#include "gpu_worker/store/storage_table.h"

namespace djinn::worker {

class SharedCopies {
 public:
  // Notes a copy that has no share of the quota yet.
  void Add(uint64_t copy, uint64_t source) {
    copies_.emplace_back(copy, source);
  }
  bool any() const { return !copies_.empty(); }
  // Charges the copies that no longer share their memory. A copy for which the
  // quota has no room loses its bytes, and has that error.
  void Account(const StorageTable& storages, SessionQuota* quota,
               RootErrors* errors);

 private:
  std::vector<std::pair<uint64_t, uint64_t>> copies_;  // with their sources
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_SHARED_COPIES_H_
