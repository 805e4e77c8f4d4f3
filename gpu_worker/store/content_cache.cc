#include "gpu_worker/store/content_cache.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include "absl/algorithm/container.h"

namespace djinn::worker {

ContentCache::Entry* ContentCache::Of(const std::string& tenant,
                                      const Key& key) const {
  const auto found = contents_.find(key);
  if (found == contents_.end()) return nullptr;
  for (const std::unique_ptr<Entry>& entry : found->second) {
    if (absl::c_linear_search(entry->tenants, tenant)) return entry.get();
  }
  return nullptr;
}

ContentCache::Entry* ContentCache::Of(
    const ContentHash& hash, const std::shared_ptr<Buffer>& buffer) const {
  const auto found = contents_.find({hash, buffer->size_bytes()});
  if (found == contents_.end()) return nullptr;
  for (const std::unique_ptr<Entry>& entry : found->second) {
    if (entry->buffer == buffer) return entry.get();
  }
  return nullptr;
}

void ContentCache::Use(Entry* entry) {
  ++entry->uses;
  entry->used = clock_->Monotonic();
  Place(entry);
}

void ContentCache::Place(Entry* entry) {
  order_.erase({entry->place, entry});
  entry->place = {
      floor_ + static_cast<double>(entry->uses) * entry->cost_per_byte,
      ++last_use_};
  order_.insert({entry->place, entry});
}

double ContentCache::PerByte(absl::Duration cost, const Buffer& buffer) {
  return absl::ToDoubleSeconds(cost) /
         static_cast<double>(std::max<uint64_t>(buffer.size_bytes(), 1));
}

std::shared_ptr<Buffer> ContentCache::Peek(const std::string& tenant,
                                           const ContentHash& hash,
                                           uint64_t size_bytes) const {
  MutexLock lock(&mu_);
  const Entry* const entry = Of(tenant, {hash, size_bytes});
  return entry == nullptr ? nullptr : entry->buffer;
}

absl::flat_hash_map<const Buffer*, ContentHash> ContentCache::Names(
    const std::string& tenant) const {
  absl::flat_hash_map<const Buffer*, ContentHash> names;
  MutexLock lock(&mu_);
  for (const auto& [key, entries] : contents_) {
    for (const std::unique_ptr<Entry>& entry : entries) {
      if (!absl::c_linear_search(entry->tenants, tenant)) continue;
      names.emplace(entry->buffer.get(), key.first);
    }
  }
  return names;
}

void ContentCache::SetCost(const ContentHash& hash,
                           const std::shared_ptr<Buffer>& buffer,
                           absl::Duration cost) {
  MutexLock lock(&mu_);
  Entry* const entry = Of(hash, buffer);
  if (entry == nullptr) return;
  entry->cost_per_byte = PerByte(cost, *buffer);
  Place(entry);
}

std::shared_ptr<Buffer> ContentCache::Find(const std::string& tenant,
                                           const ContentHash& hash,
                                           uint64_t size_bytes) {
  MutexLock lock(&mu_);
  Entry* const entry = Of(tenant, {hash, size_bytes});
  if (entry == nullptr) {
    ++stats_.misses;
    return nullptr;
  }
  ++stats_.hits;
  Use(entry);
  return entry->buffer;
}

std::shared_ptr<Buffer> ContentCache::Insert(const std::string& tenant,
                                             const ContentHash& hash,
                                             std::shared_ptr<Buffer> buffer,
                                             absl::Duration cost) {
  Evicted evicted;  // Destroyed after the lock is released.
  MutexLock lock(&mu_);
  const uint64_t size_bytes = buffer->size_bytes();
  if (Entry* const entry = Of(tenant, {hash, size_bytes})) {
    Use(entry);
    return entry->buffer;
  }
  if (!MakePlace(tenant, &evicted)) return buffer;
  CountSent(tenant, 1);
  auto entry = std::make_unique<Entry>();
  entry->hash = hash;
  entry->buffer = buffer;
  entry->tenants = {tenant};
  entry->cost_per_byte = PerByte(cost, *buffer);
  Use(entry.get());
  contents_[{hash, size_bytes}].push_back(std::move(entry));
  ++revision_;
  return buffer;
}

void ContentCache::SetSharing(absl::flat_hash_set<std::string> tenants) {
  MutexLock lock(&mu_);
  sharing_.swap(tenants);
}

bool ContentCache::Shares(const std::string& tenant) const {
  MutexLock lock(&mu_);
  return sharing_.contains(tenant);
}

std::shared_ptr<Buffer> ContentCache::FindShared(const std::string& tenant,
                                                 const ContentHash& hash,
                                                 uint64_t size_bytes) const {
  MutexLock lock(&mu_);
  if (!sharing_.contains(tenant)) return nullptr;
  const auto found = contents_.find({hash, size_bytes});
  if (found == contents_.end()) return nullptr;
  for (const std::unique_ptr<Entry>& entry : found->second) {
    const bool open =
        absl::c_any_of(entry->tenants, [&](const std::string& owner)
                                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
                                             return sharing_.contains(owner);
                                           });
    if (open) return entry->buffer;
  }
  return nullptr;
}

void ContentCache::Adopt(const std::string& tenant, const ContentHash& hash,
                         const std::shared_ptr<Buffer>& buffer) {
  MutexLock lock(&mu_);
  --stats_.misses;
  ++stats_.hits;
  ++stats_.adoptions;
  if (Of(tenant, {hash, buffer->size_bytes()}) != nullptr) return;
  Entry* const entry = Of(hash, buffer);
  if (entry == nullptr) return;
  entry->tenants.push_back(tenant);
  Use(entry);
  ++revision_;
}

void ContentCache::CountFound() {
  MutexLock lock(&mu_);
  --stats_.misses;
  ++stats_.hits;
}

void ContentCache::EvictIdle(uint64_t bytes) {
  if (bytes == 0) return;
  Evicted evicted;  // Destroyed after the lock is released.
  MutexLock lock(&mu_);
  EvictIdleLocked(bytes, &evicted);
}

void ContentCache::KeepIdle(uint64_t bytes) {
  Evicted evicted;  // Destroyed after the lock is released.
  MutexLock lock(&mu_);
  const uint64_t idle = IdleBytes();
  if (idle > bytes) EvictIdleLocked(idle - bytes, &evicted);
}

uint64_t ContentCache::IdleBytes() const {
  uint64_t bytes = 0;
  for (const auto& [place, entry] : order_) {
    if (IsSoleOwner(entry->buffer)) bytes += entry->buffer->size_bytes();
  }
  return bytes;
}

void ContentCache::EvictIdleLocked(uint64_t bytes, Evicted* evicted) {
  struct Idle {
    std::vector<Entry*> worst_last;
    uint64_t bytes = 0;
  };
  absl::flat_hash_map<std::string, Idle> idle;
  for (auto at = order_.rbegin(); at != order_.rend(); ++at) {
    // Only the cache hands out references, under this lock: a count of one
    // cannot rise meanwhile.
    if (!IsSoleOwner(at->second->buffer)) continue;
    for (const std::string& tenant : at->second->tenants) {
      Idle& of_tenant = idle[tenant];
      of_tenant.worst_last.push_back(at->second);
      of_tenant.bytes += at->second->buffer->size_bytes();
    }
  }
  uint64_t freed = 0;
  while (freed < bytes && !idle.empty()) {
    // Names break ties.
    const auto most =
        absl::c_max_element(idle, [](const auto& a, const auto& b) {
          return std::tie(a.second.bytes, a.first) <
                 std::tie(b.second.bytes, b.first);
        });
    Entry* const worst = most->second.worst_last.back();
    const uint64_t size_bytes = worst->buffer->size_bytes();
    if (worst->tenants.size() == 1) freed += size_bytes;
    LetGo(most->first, worst, evicted);
    most->second.worst_last.pop_back();
    most->second.bytes -= size_bytes;
    if (most->second.worst_last.empty()) idle.erase(most);
  }
}

bool ContentCache::MakePlace(const std::string& tenant, Evicted* evicted) {
  const size_t share = std::max<size_t>(max_contents_ / 2, 1);
  const auto sent = sent_.find(tenant);
  if (sent != sent_.end() && sent->second >= share &&
      !EvictSentBy(tenant, evicted)) {
    return false;
  }
  while (order_.size() >= max_contents_) {
    std::vector<std::pair<size_t, std::string>> most_first;
    for (const auto& [sender, count] : sent_) {
      most_first.emplace_back(count, sender);
    }
    absl::c_sort(most_first, std::greater<>());
    const bool gone = absl::c_any_of(
        most_first, [&](const auto& sender) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
          return EvictSentBy(sender.second, evicted);
        });
    if (!gone) return false;
  }
  return true;
}

bool ContentCache::EvictSentBy(const std::string& tenant, Evicted* evicted) {
  for (const auto& [place, entry] : order_) {
    if (entry->tenants.front() != tenant || !IsSoleOwner(entry->buffer)) {
      continue;
    }
    LetGo(tenant, entry, evicted);
    return true;
  }
  return false;
}

void ContentCache::LetGo(const std::string& tenant, Entry* entry,
                         Evicted* evicted) {
  const bool was_sender = entry->tenants.front() == tenant;
  if (was_sender) CountSent(tenant, -1);
  entry->tenants.erase(absl::c_find(entry->tenants, tenant));
  if (!entry->tenants.empty()) {
    if (was_sender) CountSent(entry->tenants.front(), 1);
    ++revision_;
    return;
  }
  ++stats_.evictions;
  idle_before_evict_.Observe(clock_->Monotonic() - entry->used);
  floor_ = std::max(floor_, entry->place.first);
  Remove(entry, evicted);
}

void ContentCache::Remove(Entry* entry, Evicted* evicted) {
  ++revision_;
  order_.erase({entry->place, entry});
  const uint64_t size_bytes = entry->buffer->size_bytes();
  const auto found = contents_.find({entry->hash, size_bytes});
  const auto owned = absl::c_find_if(
      found->second, [entry](const auto& e) { return e.get() == entry; });
  evicted->push_back(std::move(*owned));
  found->second.erase(owned);
  if (found->second.empty()) contents_.erase(found);
}

void ContentCache::CountSent(const std::string& tenant, int by) {
  size_t& count = sent_[tenant];
  count += static_cast<size_t>(by);
  if (count == 0) sent_.erase(tenant);
}

std::vector<ContentCache::Content> ContentCache::List() const {
  MutexLock lock(&mu_);
  std::vector<Content> contents;
  contents.reserve(order_.size());
  for (const auto& [place, entry] : order_) {
    for (const std::string& tenant : entry->tenants) {
      contents.push_back({tenant, entry->hash, entry->buffer->size_bytes()});
    }
  }
  return contents;
}

ContentCache::Stats ContentCache::stats() const {
  MutexLock lock(&mu_);
  Stats stats = stats_;
  stats.entries = order_.size();
  for (const auto& [place, entry] : order_) {
    stats.bytes += entry->buffer->size_bytes();
  }
  stats.idle_bytes = IdleBytes();
  return stats;
}

uint64_t ContentCache::revision() const {
  MutexLock lock(&mu_);
  return revision_;
}

}  // namespace djinn::worker
