// Maps fingerprint and size to a plan. All sessions and tenants share the
// cache: a graph holds no tenant's values, and its name is the SHA-256 of its
// encoding.
//
// The cache owns the plans. A tenant holds a plan from when it inserted it:
// when it defined the graph, or ran it at another size than 0. When a limit is
// reached, the tenant with the greatest share gives up the plan that it used
// least recently (common/base/tenant_order.h), and a plan without holders is
// evicted; a plan that is running lives until its run ends. A tenant does not
// find a plan that only others hold: it makes the plan again, and Insert() then
// returns the one that is there. So neither answers nor their times tell a
// tenant what others run, and memory holds each plan once.
//
// The cache keeps two kinds of plans. Clients define plans at size 0 and send
// them again when they are missing. Plans at other sizes are made from these,
// and a long loop makes many. Each kind is sure of half of the limits, however
// many plans there are of the other kind, and tenants have a share of each. A
// run at any size also counts as a use of the plan at size 0.
//
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
    // Limits the sum of Plan::estimated_bytes().
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

  // Returns the plan at size 0, or null if the tenant does not hold it. Counts
  // a hit or a miss.
  std::shared_ptr<const Plan> Find(absl::string_view fingerprint,
                                   absl::string_view tenant);
  // Returns the plan for a run of an admitted graph, or null if the tenant does
  // not hold it. Counts nothing.
  std::shared_ptr<const Plan> Use(absl::string_view fingerprint,
                                  absl::string_view tenant, int64_t size = 0);
  // Keeps the plan for the tenant. Returns the plan that is already there, if
  // another tenant or thread inserted one. The plan shares the counters of its
  // graph's other plans in the cache.
  std::shared_ptr<const Plan> Insert(std::shared_ptr<Plan> plan,
                                     absl::string_view tenant);

  // Sets the phase and the cache slots that the graph has for the tenants, as
  // Plan::SetKind(). The cache forgets them with the graph's last plan. Does
  // nothing if there is no plan.
  void SetKind(absl::string_view fingerprint, v1::Phase phase,
               absl::Span<const uint32_t> cache_slots,
               absl::Span<const std::string> tenants = {});

  // Returns one plan of each graph, of any size.
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
  // The plans of one graph that the cache holds; at least one.
  struct Entry {
    std::unique_ptr<Kept> base;
    absl::flat_hash_map<int64_t, std::unique_ptr<Kept>> sized;

    const std::shared_ptr<const Plan>& any() const {
      return base != nullptr ? base->plan : sized.begin()->second->plan;
    }
  };
  using Evicted = std::vector<std::unique_ptr<Kept>>;

  bool Full() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes room for the newest plan, which has the given kind.
  void Shrink(const Kind* newest_kind, const Kept* newest, Evicted* evicted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::unique_ptr<Kept> Remove(const Plan& plan)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  mutable Mutex mu_;
  // Plans at size 0, and plans at other sizes.
  Kind bases_ ABSL_GUARDED_BY(mu_);
  Kind sized_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, Entry> graphs_ ABSL_GUARDED_BY(mu_);
  Stats stats_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_GRAPH_CACHE_H_
