#include "gpu_worker/cache/graph_cache.h"

#include <utility>

#include "absl/container/flat_hash_set.h"

namespace djinn::worker {

std::shared_ptr<const Plan> GraphCache::Find(const std::string& fingerprint) {
  MutexLock lock(&mu_);
  const auto found = plans_.find(Key(fingerprint, 0));
  if (found == plans_.end()) {
    ++stats_.misses;
    return nullptr;
  }
  ++stats_.hits;
  order_.splice(order_.begin(), order_, found->second);
  return *found->second;
}

std::shared_ptr<const Plan> GraphCache::Use(absl::string_view fingerprint,
                                            int64_t size) {
  MutexLock lock(&mu_);
  const auto found = plans_.find(Key(fingerprint, size));
  if (found == plans_.end()) return nullptr;
  order_.splice(order_.begin(), order_, found->second);
  return *found->second;
}

std::shared_ptr<const Plan> GraphCache::Insert(
    std::shared_ptr<const Plan> plan) {
  // Destroyed after the lock is released: a plan may own much.
  Order evicted;
  MutexLock lock(&mu_);
  const auto found = plans_.find(KeyOf(*plan));
  if (found != plans_.end()) return *found->second;
  order_.push_front(plan);
  plans_.emplace(KeyOf(*plan), order_.begin());
  stats_.bytes += plan->estimated_bytes();
  while (order_.size() > 1 && (order_.size() > options_.max_plans ||
                               stats_.bytes > options_.max_bytes)) {
    const auto last = std::prev(order_.end());
    stats_.bytes -= (*last)->estimated_bytes();
    ++stats_.evictions;
    plans_.erase(KeyOf(**last));
    evicted.splice(evicted.begin(), order_, last);
  }
  return plan;
}

std::vector<std::shared_ptr<const Plan>> GraphCache::List() const {
  std::vector<std::shared_ptr<const Plan>> plans;
  MutexLock lock(&mu_);
  absl::flat_hash_set<absl::string_view> seen;
  for (const std::shared_ptr<const Plan>& plan : order_) {
    if (seen.insert(plan->fingerprint()).second) plans.push_back(plan);
  }
  return plans;
}

GraphCache::Stats GraphCache::stats() const {
  MutexLock lock(&mu_);
  Stats stats = stats_;
  stats.plans = order_.size();
  return stats;
}

}  // namespace djinn::worker
