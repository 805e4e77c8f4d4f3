// The storages of a session that were copied from another one
// (v1::StorageCopy). They take none of the session's quota until the two have
// different bytes, or only the copy is left. What they take then is spare: they
// give their bytes up when the quota has no room for something else.
//
// Not thread-safe: the thread that executes the session owns it.
#ifndef GPU_WORKER_SESSION_STATE_SHARED_COPIES_H_
#define GPU_WORKER_SESSION_STATE_SHARED_COPIES_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "gpu_worker/session/state/offers.h"
#include "gpu_worker/store/quota.h"
#include "gpu_worker/store/root_errors.h"
#include "gpu_worker/store/storage_table.h"

namespace djinn::worker {

class SharedCopies {
 public:
  // Notes a copy that has no share of the quota yet.
  void Add(uint64_t copy, uint64_t source) {
    sharing_.emplace_back(copy, source);
  }
  bool any() const { return !sharing_.empty() || !charged_.empty(); }
  // Charges the copies that no longer share their memory. A copy for which the
  // quota has no room loses its bytes, and has that error.
  void Account(const StorageTable& storages, SessionQuota* quota,
               RootErrors* errors);
  // Makes the oldest copy that has bytes of its own, and is not being fetched,
  // lose them. It has the error COPY_GIVEN_UP from then on. Returns false if
  // there is none.
  bool GiveUpOne(const StorageTable& storages, const Offers& offers,
                 RootErrors* errors);

 private:
  // With their sources.
  std::vector<std::pair<uint64_t, uint64_t>> sharing_;
  // Those that had to be charged. Some may have been freed or given up since.
  std::vector<uint64_t> charged_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_SHARED_COPIES_H_
