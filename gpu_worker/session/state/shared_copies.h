// The storages of a session that were copied from another one
// (v1::StorageCopy). They take none of the session's quota until the two have
// different bytes, or only the copy is left. What they take then is spare: they
// give their bytes up when the quota has no room for something else.
//
// Not thread-safe: the thread that executes the session owns it.
#ifndef GPU_WORKER_SESSION_STATE_SHARED_COPIES_H_
#define GPU_WORKER_SESSION_STATE_SHARED_COPIES_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "gpu_worker/session/state/offers.h"
#include "gpu_worker/store/quota.h"
#include "gpu_worker/store/root_errors.h"
#include "gpu_worker/store/storage_table.h"

namespace djinn::worker {

// The reason of the error of a copy that has lost its bytes.
inline constexpr char kCopyGivenUp[] = "COPY_GIVEN_UP";

class SharedCopies {
 public:
  // Notes a copy that has no share of the quota yet.
  void Add(uint64_t copy, uint64_t source) {
    sharing_.emplace_back(copy, source);
  }
  bool any() const { return !sharing_.empty(); }
  // Charges the copies that no longer share their memory. A copy for which the
  // quota has no room loses its bytes: it has the error COPY_GIVEN_UP.
  void Account(const StorageTable& storages, SessionQuota* quota,
               RootErrors* errors);
  // Makes copies that have bytes of their own, and are not being fetched, lose
  // `missing` bytes or more, the oldest first. Returns false, and changes
  // nothing, if they have fewer.
  bool GiveUp(uint64_t missing, const StorageTable& storages,
              const Offers& offers, RootErrors* errors);

 private:
  // Notes that the copy was charged.
  void Charged(uint64_t copy, const StorageTable& storages);

  // With their sources.
  std::vector<std::pair<uint64_t, uint64_t>> sharing_;
  // The copies that count in the quota. Some may have been freed since.
  std::vector<uint64_t> charged_;
  // Freed ones are dropped when there are this many.
  size_t prune_at_ = 64;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_SHARED_COPIES_H_
