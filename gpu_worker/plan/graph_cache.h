// Fingerprint and size → plan, shared by all sessions and tenants: a graph
// holds no tenant's values, and its name is the SHA-256 of what it says.
//
// The cache owns the plans. A plan is a tenant's while the tenant holds it:
// from when it defined the graph, or ran it at another size than 0. When a
// limit is reached, the tenant with the greatest share lets go of what it used
// least recently (common/base/tenant_order.h), and a plan that nobody holds
// goes; one that is running lives until its run ends. What a tenant does not
// hold is missing for it, even if it is here for others: nobody learns from
// what it runs what others have.
//
// Plans at size 0, which a client is asked for when they are missed, and those
// at other sizes, which are made from them and are many in a long loop, each
// keep half of the limits whatever there is of the other kind; tenants have
// their parts of each. A run at any size is a use of the plan at size 0.
// Thread-safe.
#ifndef GPU_WORKER_PLAN_GRAPH_CACHE_H_
#define GPU_WORKER_PLAN_GRAPH_CACHE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "common/base/tenant_order.h"
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

  explicit GraphCache(Options options);

  uint64_t max_bytes() const { return options_.max_bytes; }

  struct Found {
    // Null when it is not here.
    std::shared_ptr<const Plan> plan;
    // The tenant held it before.
    bool held = false;
  };
  // The plan at size 0, which the tenant holds from now on if it is here.
  // Counts a hit or a miss.
  Found Find(absl::string_view fingerprint, absl::string_view tenant);
  // For a run of a graph that was admitted: null when the tenant holds no
  // such plan. One at another size that is here is its own as soon as it holds
  // the one at size 0. Counts nothing.
  std::shared_ptr<const Plan> Use(absl::string_view fingerprint,
                                  absl::string_view tenant, int64_t size = 0);
  // Keeps the plan for the tenant; returns the one already here if another
  // thread was faster. It counts with those of its graph that are here.
  std::shared_ptr<const Plan> Insert(std::shared_ptr<Plan> plan,
                                     absl::string_view tenant);

  // Says what kind of work the graph is to the tenants, and which of its
  // slots are caches, as Plan::SetKind(); forgotten with its last plan. Without
  // effect where there is none.
  void SetKind(absl::string_view fingerprint, v1::Phase phase,
               absl::Span<const uint32_t> cache_slots,
               absl::Span<const std::string> tenants = {});

  // One of each graph, whatever its sizes.
  std::vector<std::shared_ptr<const Plan>> List() const;
  Stats stats() const;

 private:
  struct Kept {
    std::shared_ptr<const Plan> plan;
    TenantOrder<Kept>::Holders holders;
  };
  struct Kind {
    TenantOrder<Kept> order;
    size_t plans = 0;
    uint64_t bytes = 0;
  };
  // What is here of a graph; at least one plan.
  struct Entry {
    std::unique_ptr<Kept> base;
    absl::flat_hash_map<int64_t, std::unique_ptr<Kept>> sized;

    const std::shared_ptr<const Plan>& any() const {
      return base != nullptr ? base->plan : sized.begin()->second->plan;
    }
  };
  using Evicted = std::vector<std::unique_ptr<Kept>>;

  bool Full() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes room for the newest plan, which is of this kind.
  void Shrink(const Kind* newest_kind, const Kept* newest, Evicted* evicted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::unique_ptr<Kept> Remove(const Plan& plan)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  mutable Mutex mu_;
  // At size 0, and at others.
  Kind bases_ ABSL_GUARDED_BY(mu_);
  Kind sized_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, Entry> graphs_ ABSL_GUARDED_BY(mu_);
  Stats stats_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_GRAPH_CACHE_H_
