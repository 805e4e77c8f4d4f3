// Fingerprint and size → plan, shared by all sessions and tenants: a structure
// holds no tenant's values, and its name is the SHA-256 of what it says.
//
// The cache owns the plans: least recently used ones go first when a limit is
// reached, whoever defined them, and one that is running lives until its run
// ends. Plans at size 0, which a client is asked for when they are missed, and
// those at other sizes, which are made from them and are many in a long loop,
// each keep half of the limits whatever there is of the other kind. A run at
// any size is a use of the plan at size 0. Thread-safe.
#ifndef GPU_WORKER_CACHE_GRAPH_CACHE_H_
#define GPU_WORKER_CACHE_GRAPH_CACHE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "common/mutex.h"
#include "djinn/v1/notes.pb.h"
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
  // It counts with those of its structure that are here.
  std::shared_ptr<const Plan> Insert(std::shared_ptr<Plan> plan);

  // The tenant defined the structure. Whether it had before, while plans of it
  // were here without a break: all that a tenant is told of what is here. Also
  // false beyond kMaxTenants of a structure.
  bool NoteDefined(absl::string_view fingerprint, absl::string_view tenant);

  // Says what kind of work the structure is; forgotten with its last plan.
  // Without effect where there is none.
  void SetPhase(absl::string_view fingerprint, v1::Phase phase);

  // One of each structure, whatever its sizes.
  std::vector<std::shared_ptr<const Plan>> List() const;
  Stats stats() const;

  static constexpr size_t kMaxTenants = 256;

 private:
  // Most recently used first.
  using Order = std::list<std::shared_ptr<const Plan>>;
  struct Kind {
    Order order;
    uint64_t bytes = 0;
  };
  // What is here of a structure; at least one plan.
  struct Entry {
    std::optional<Order::iterator> base;
    absl::flat_hash_map<int64_t, Order::iterator> sized;
    absl::flat_hash_set<std::string> tenants;

    const std::shared_ptr<const Plan>& any() const {
      return base.has_value() ? **base : *sized.begin()->second;
    }
  };

  std::shared_ptr<const Plan> UseLocked(absl::string_view fingerprint,
                                        int64_t size)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Full() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes room for the newest plan, which is of this kind.
  void Shrink(const Kind* newest, Order* evicted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  mutable Mutex mu_;
  // At size 0, and at others.
  Kind bases_ ABSL_GUARDED_BY(mu_);
  Kind sized_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, Entry> structures_ ABSL_GUARDED_BY(mu_);
  Stats stats_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_CACHE_GRAPH_CACHE_H_
