#include "gpu_worker/cache/content_cache.h"

#include <algorithm>

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
  ++sent_[tenant];
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

std::vector<std::shared_ptr<Buffer>> ContentCache::FindShared(
    const std::string& tenant, const ContentHash& hash,
    uint64_t size_bytes) const {
  std::vector<std::shared_ptr<Buffer>> shared;
  MutexLock lock(&mu_);
  if (!sharing_.contains(tenant)) return shared;
  const auto found = contents_.find({hash, size_bytes});
  if (found == contents_.end()) return shared;
  for (const std::unique_ptr<Entry>& entry : found->second) {
    if (shared.size() == kMaxCandidates) break;
    const bool open =
        absl::c_any_of(entry->tenants, [&](const std::string& owner)
                                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
                                             return sharing_.contains(owner);
                                           });
    if (open) shared.push_back(entry->buffer);
  }
  return shared;
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

void ContentCache::EvictIdle(uint64_t bytes) {
  Evicted evicted;
  MutexLock lock(&mu_);
  Evict(bytes, 0, nullptr, &evicted);
}

bool ContentCache::MakePlace(const std::string& tenant, Evicted* evicted) {
  const size_t share = std::max<size_t>(max_contents_ / 2, 1);
  const auto sent = sent_.find(tenant);
  if (sent != sent_.end() && sent->second >= share) {
    Evict(0, 1, &tenant, evicted);
    return !evicted->empty();
  }
  if (order_.size() >= max_contents_) Evict(0, 1, nullptr, evicted);
  return order_.size() < max_contents_;
}

void ContentCache::Evict(uint64_t bytes, size_t count,
                         const std::string* sender, Evicted* evicted) {
  uint64_t freed = 0;
  for (auto next = order_.begin(); next != order_.end();) {
    if (freed >= bytes && evicted->size() >= count) break;
    const auto at = next++;
    Entry* const entry = at->second;
    // Only the cache hands out references, under this lock: a count of one
    // cannot rise meanwhile.
    if (!IsSoleOwner(entry->buffer)) continue;
    if (sender != nullptr && entry->tenants.front() != *sender) continue;
    const uint64_t size_bytes = entry->buffer->size_bytes();
    freed += size_bytes;
    floor_ = std::max(floor_, entry->place.first);
    ++stats_.evictions;
    ++revision_;
    order_.erase(at);
    const auto sent = sent_.find(entry->tenants.front());
    if (--sent->second == 0) sent_.erase(sent);
    const auto found = contents_.find({entry->hash, size_bytes});
    const auto owned = absl::c_find_if(
        found->second, [entry](const auto& e) { return e.get() == entry; });
    evicted->push_back(std::move(*owned));
    found->second.erase(owned);
    if (found->second.empty()) contents_.erase(found);
  }
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
    if (IsSoleOwner(entry->buffer)) {
      stats.idle_bytes += entry->buffer->size_bytes();
    }
  }
  return stats;
}

uint64_t ContentCache::revision() const {
  MutexLock lock(&mu_);
  return revision_;
}

}  // namespace djinn::worker
