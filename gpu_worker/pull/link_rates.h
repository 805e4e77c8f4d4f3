// Measures how fast values arrived from other workers lately.
//
// For each worker the newest measurements count most. A worker that was not
// fetched from for a while is forgotten. Thread-safe.
#ifndef GPU_WORKER_PULL_LINK_RATES_H_
#define GPU_WORKER_PULL_LINK_RATES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "djinn/v1/placement.pb.h"
#include "gpu_worker/pull/decayed_rate.h"

namespace djinn::worker {

class LinkRates {
 public:
  // The most workers; beyond that, the one that was measured longest ago is
  // forgotten.
  static constexpr size_t kMaxLinks = 256;
  static constexpr absl::Duration kFresh = DecayedRate::kFresh;
  static constexpr absl::Duration kKept = DecayedRate::kKept;

  // `clock` must outlive this.
  explicit LinkRates(Clock* clock) : clock_(clock) {}

  // Adds a measurement: the bytes that arrived from the worker in that time.
  // Both must be more than 0. Returns what is known of the link now.
  v1::PeerLink Add(const std::string& worker_id, uint64_t bytes,
                   absl::Duration took);

  // Returns the known links by worker id.
  std::vector<v1::PeerLink> Known() const;

 private:
  static v1::PeerLink Describe(const std::string& worker_id, uint64_t rate);

  Clock* const clock_;
  mutable Mutex mu_;
  absl::btree_map<std::string, DecayedRate> links_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_PULL_LINK_RATES_H_
