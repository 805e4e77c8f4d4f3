#include "gpu_worker/cache/graph_cache.h"

#include <iterator>
#include <utility>

namespace djinn::worker {

std::shared_ptr<const Plan> GraphCache::Find(const std::string& fingerprint) {
  MutexLock lock(&mu_);
  std::shared_ptr<const Plan> plan = UseLocked(fingerprint, 0);
  ++(plan != nullptr ? stats_.hits : stats_.misses);
  return plan;
}

std::shared_ptr<const Plan> GraphCache::Use(absl::string_view fingerprint,
                                            int64_t size) {
  MutexLock lock(&mu_);
  return UseLocked(fingerprint, size);
}

std::shared_ptr<const Plan> GraphCache::UseLocked(absl::string_view fingerprint,
                                                  int64_t size) {
  const auto found = structures_.find(fingerprint);
  if (found == structures_.end()) return nullptr;
  const Entry& entry = found->second;
  if (entry.base.has_value()) {
    bases_.order.splice(bases_.order.begin(), bases_.order, *entry.base);
  }
  if (size == 0) return entry.base.has_value() ? **entry.base : nullptr;
  const auto at = entry.sized.find(size);
  if (at == entry.sized.end()) return nullptr;
  sized_.order.splice(sized_.order.begin(), sized_.order, at->second);
  return *at->second;
}

std::shared_ptr<const Plan> GraphCache::Insert(std::shared_ptr<Plan> plan) {
  // Destroyed after the lock is released: a plan may own much.
  Order evicted;
  MutexLock lock(&mu_);
  if (auto here = UseLocked(plan->fingerprint(), plan->size())) return here;
  const auto [found, first] = structures_.try_emplace(plan->fingerprint());
  Entry& entry = found->second;
  if (!first) plan->CountWith(*entry.any());
  Kind& kind = plan->size() == 0 ? bases_ : sized_;
  kind.order.push_front(plan);
  kind.bytes += plan->estimated_bytes();
  if (plan->size() == 0) {
    entry.base = kind.order.begin();
  } else {
    entry.sized.emplace(plan->size(), kind.order.begin());
  }
  Shrink(&kind, &evicted);
  return plan;
}

bool GraphCache::Full() const {
  return bases_.order.size() + sized_.order.size() > options_.max_plans ||
         bases_.bytes + sized_.bytes > options_.max_bytes;
}

void GraphCache::Shrink(const Kind* newest, Order* evicted) {
  while (Full()) {
    // One of them has more than its half.
    const bool many_sized = sized_.order.size() > options_.max_plans / 2 ||
                            sized_.bytes > options_.max_bytes / 2;
    Kind* kind = many_sized ? &sized_ : &bases_;
    // The newest stays, even if it is too large alone.
    const auto evictable = [newest](const Kind& of) {
      return of.order.size() > (&of == newest ? 1 : 0);
    };
    if (!evictable(*kind)) kind = many_sized ? &bases_ : &sized_;
    if (!evictable(*kind)) return;
    const auto last = std::prev(kind->order.end());
    const Plan& plan = **last;
    kind->bytes -= plan.estimated_bytes();
    ++stats_.evictions;
    const auto found = structures_.find(plan.fingerprint());
    Entry& entry = found->second;
    if (plan.size() == 0) {
      entry.base.reset();
    } else {
      entry.sized.erase(plan.size());
    }
    if (!entry.base.has_value() && entry.sized.empty()) {
      structures_.erase(found);
    }
    evicted->splice(evicted->begin(), kind->order, last);
  }
}

bool GraphCache::NoteDefined(absl::string_view fingerprint,
                             absl::string_view tenant) {
  MutexLock lock(&mu_);
  const auto found = structures_.find(fingerprint);
  if (found == structures_.end()) return false;
  absl::flat_hash_set<std::string>& tenants = found->second.tenants;
  if (tenants.contains(tenant)) return true;
  if (tenants.size() < kMaxTenants) tenants.emplace(tenant);
  return false;
}

void GraphCache::SetPhase(absl::string_view fingerprint, v1::Phase phase) {
  MutexLock lock(&mu_);
  const auto found = structures_.find(fingerprint);
  if (found != structures_.end()) found->second.any()->SetPhase(phase);
}

std::vector<std::shared_ptr<const Plan>> GraphCache::List() const {
  std::vector<std::shared_ptr<const Plan>> plans;
  MutexLock lock(&mu_);
  plans.reserve(structures_.size());
  for (const auto& [fingerprint, entry] : structures_) {
    plans.push_back(entry.any());
  }
  return plans;
}

GraphCache::Stats GraphCache::stats() const {
  MutexLock lock(&mu_);
  Stats stats = stats_;
  stats.plans = bases_.order.size() + sized_.order.size();
  stats.bytes = bases_.bytes + sized_.bytes;
  return stats;
}

}  // namespace djinn::worker
