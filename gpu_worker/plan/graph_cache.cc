#include "gpu_worker/plan/graph_cache.h"

#include <optional>
#include <utility>

namespace djinn::worker {

GraphCache::GraphCache(Options options)
    : options_(options),
      bases_{.order = TenantOrder<Kept>(
                 {.items = options.max_plans, .bytes = options.max_bytes})},
      sized_{.order = TenantOrder<Kept>(
                 {.items = options.max_plans, .bytes = options.max_bytes})} {}

std::shared_ptr<const Plan> GraphCache::Find(absl::string_view fingerprint,
                                             absl::string_view tenant) {
  MutexLock lock(&mu_);
  const auto found = graphs_.find(fingerprint);
  Kept* const base =
      found == graphs_.end() ? nullptr : found->second.base.get();
  if (base == nullptr || !bases_.order.Use(tenant, base)) {
    ++stats_.misses;
    return nullptr;
  }
  ++stats_.hits;
  return base->plan;
}

std::shared_ptr<const Plan> GraphCache::Use(absl::string_view fingerprint,
                                            absl::string_view tenant,
                                            int64_t size) {
  MutexLock lock(&mu_);
  const auto found = graphs_.find(fingerprint);
  if (found == graphs_.end()) return nullptr;
  const Entry& entry = found->second;
  const bool held =
      entry.base != nullptr && bases_.order.Use(tenant, entry.base.get());
  if (size == 0) return held ? entry.base->plan : nullptr;
  const auto at = entry.sized.find(size);
  if (at == entry.sized.end()) return nullptr;
  Kept* const sized = at->second.get();
  return sized_.order.Use(tenant, sized) ? sized->plan : nullptr;
}

std::shared_ptr<const Plan> GraphCache::Insert(std::shared_ptr<Plan> plan,
                                               absl::string_view tenant) {
  // Evicted plans, which are destroyed after the lock is released because that
  // may take long.
  Evicted evicted;
  MutexLock lock(&mu_);
  const auto [found, first] = graphs_.try_emplace(plan->fingerprint());
  Entry& entry = found->second;
  if (!first) plan->CountWith(*entry.any());
  const bool is_base = plan->size() == 0;
  Kind& kind = is_base ? bases_ : sized_;
  std::unique_ptr<Kept>& kept =
      is_base ? entry.base : entry.sized[plan->size()];
  const bool added = kept == nullptr;
  if (added) kept = std::make_unique<Kept>(Kept{std::move(plan), {}});
  const std::shared_ptr<const Plan> here = kept->plan;
  const uint64_t bytes = here->estimated_bytes();
  kind.order.Take(tenant, kept.get(), bytes);
  if (added) {
    ++kind.plans;
    kind.bytes += bytes;
    Shrink(&kind, kept.get(), &evicted);
  }
  return here;
}

bool GraphCache::Full() const {
  return bases_.plans + sized_.plans > options_.max_plans ||
         bases_.bytes + sized_.bytes > options_.max_bytes;
}

void GraphCache::Shrink(const Kind* newest_kind, const Kept* newest,
                        Evicted* evicted) {
  while (Full()) {
    // A full cache means that one kind has more than its half.
    const bool many_sized = sized_.plans > options_.max_plans / 2 ||
                            sized_.bytes > options_.max_bytes / 2;
    Kind* kind = many_sized ? &sized_ : &bases_;
    Kind* const other = many_sized ? &bases_ : &sized_;
    // The newest plan stays, even if it alone is too large.
    auto let_go = kind->order.Release(kind == newest_kind ? newest : nullptr);
    if (!let_go.has_value()) {
      kind = other;
      let_go = kind->order.Release(kind == newest_kind ? newest : nullptr);
    }
    if (!let_go.has_value()) return;
    if (!let_go->item->holders.empty()) continue;
    ++stats_.evictions;
    --kind->plans;
    kind->bytes -= let_go->item->plan->estimated_bytes();
    evicted->push_back(Remove(*let_go->item->plan));
  }
}

std::unique_ptr<GraphCache::Kept> GraphCache::Remove(const Plan& plan) {
  const auto found = graphs_.find(plan.fingerprint());
  Entry& entry = found->second;
  std::unique_ptr<Kept> removed;
  if (plan.size() == 0) {
    removed = std::move(entry.base);
  } else {
    const auto sized = entry.sized.find(plan.size());
    removed = std::move(sized->second);
    entry.sized.erase(sized);
  }
  if (entry.base == nullptr && entry.sized.empty()) graphs_.erase(found);
  return removed;
}

void GraphCache::SetKind(absl::string_view fingerprint, v1::Phase phase,
                         absl::Span<const uint32_t> cache_slots,
                         absl::Span<const std::string> tenants) {
  MutexLock lock(&mu_);
  const auto found = graphs_.find(fingerprint);
  if (found == graphs_.end()) return;
  found->second.any()->SetKind(phase, cache_slots, tenants);
}

std::vector<std::shared_ptr<const Plan>> GraphCache::List() const {
  std::vector<std::shared_ptr<const Plan>> plans;
  MutexLock lock(&mu_);
  plans.reserve(graphs_.size());
  for (const auto& [fingerprint, entry] : graphs_) {
    plans.push_back(entry.any());
  }
  return plans;
}

GraphCache::Stats GraphCache::stats() const {
  MutexLock lock(&mu_);
  Stats stats = stats_;
  stats.plans = bases_.plans + sized_.plans;
  stats.bytes = bases_.bytes + sized_.bytes;
  return stats;
}

}  // namespace djinn::worker
