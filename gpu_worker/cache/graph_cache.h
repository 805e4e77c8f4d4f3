// Fingerprint and size → plan, shared by all sessions and tenants: a structure
// holds no tenant's values, and its name is the SHA-256 of what it says.
//
// The cache owns the plans: least recently used ones go first when a limit is
// reached, whoever defined them, and one that is running lives until its run
// ends. Thread-safe.
#ifndef GPU_WORKER_CACHE_GRAPH_CACHE_H_
#define GPU_WORKER_CACHE_GRAPH_CACHE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "common/mutex.h"
#include "gpu_worker/plan/plan.h"

namespace djinn::worker {

class GraphCache {
 public:
  struct Options {
    size_t max_plans = 4096;
    // Of Plan::estimated_bytes().
    uint64_t max_bytes = uint64_t{256} << 20;
  };
  struct Stats {
    uint64_t hits = 0;
    uint64_t misses = 0;
    uint64_t evictions = 0;
    uint64_t plans = 0;
    uint64_t bytes = 0;
  };

  explicit GraphCache(Options options) : options_(options) {}

  uint64_t max_bytes() const { return options_.max_bytes; }

  // Null when the plan is not here. Counts a hit or a miss.
  std::shared_ptr<const Plan> Find(const std::string& fingerprint);
  // The same for a run of a structure that was admitted: counts nothing.
  std::shared_ptr<const Plan> Use(absl::string_view fingerprint,
                                  int64_t size = 0);
  // Keeps the plan; returns the one already here if another thread was faster.
  std::shared_ptr<const Plan> Insert(std::shared_ptr<const Plan> plan);

  // One of each structure, whatever its sizes.
  std::vector<std::shared_ptr<const Plan>> List() const;
  Stats stats() const;

 private:
  using Order = std::list<std::shared_ptr<const Plan>>;
  // The fingerprint is the plan's.
  using Key = std::pair<absl::string_view, int64_t>;

  static Key KeyOf(const Plan& plan) {
    return {plan.fingerprint(), plan.size()};
  }

  const Options options_;
  mutable Mutex mu_;
  // Most recently used first.
  Order order_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<Key, Order::iterator> plans_ ABSL_GUARDED_BY(mu_);
  Stats stats_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_CACHE_GRAPH_CACHE_H_
