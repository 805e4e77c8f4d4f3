#include "gpu_worker/cache/content_cache.h"

#include <utility>

namespace djinn::worker {

std::shared_ptr<Buffer> ContentCache::Find(const std::string& tenant,
                                           const ContentHash& hash,
                                           uint64_t size_bytes) {
  MutexLock lock(&mu_);
  const auto found = contents_.find(Key(tenant, hash, size_bytes));
  if (found == contents_.end()) {
    ++stats_.misses;
    return nullptr;
  }
  ++stats_.hits;
  order_.splice(order_.begin(), order_, found->second);
  return found->second->buffer;
}

std::shared_ptr<Buffer> ContentCache::Insert(const std::string& tenant,
                                             const ContentHash& hash,
                                             std::shared_ptr<Buffer> buffer) {
  Order evicted;  // Destroyed after the lock is released.
  MutexLock lock(&mu_);
  Key key(tenant, hash, buffer->size_bytes());
  const auto found = contents_.find(key);
  if (found != contents_.end()) {
    order_.splice(order_.begin(), order_, found->second);
    return found->second->buffer;
  }
  if (order_.size() >= max_contents_) Evict(0, 1, &evicted);
  if (order_.size() >= max_contents_) return buffer;
  order_.push_front({{tenant, hash, buffer->size_bytes()}, buffer});
  contents_.emplace(std::move(key), order_.begin());
  ++revision_;
  return buffer;
}

void ContentCache::EvictIdle(uint64_t bytes) {
  Order evicted;
  MutexLock lock(&mu_);
  Evict(bytes, 0, &evicted);
}

void ContentCache::Evict(uint64_t bytes, size_t count, Order* evicted) {
  uint64_t freed = 0;
  size_t forgotten = 0;
  for (auto entry = order_.end(); entry != order_.begin();) {
    if (freed >= bytes && forgotten >= count) break;
    --entry;
    // Only the cache hands out references, under this lock: a count of one
    // cannot rise meanwhile.
    if (!IsSoleOwner(entry->buffer)) continue;
    const Content& content = entry->content;
    freed += content.size_bytes;
    ++forgotten;
    ++stats_.evictions;
    ++revision_;
    contents_.erase(Key(content.tenant, content.hash, content.size_bytes));
    const auto going = entry++;
    evicted->splice(evicted->begin(), order_, going);
  }
}

std::vector<ContentCache::Content> ContentCache::List() const {
  MutexLock lock(&mu_);
  std::vector<Content> contents;
  contents.reserve(order_.size());
  for (const Entry& entry : order_) contents.push_back(entry.content);
  return contents;
}

ContentCache::Stats ContentCache::stats() const {
  MutexLock lock(&mu_);
  Stats stats = stats_;
  for (const Entry& entry : order_) {
    if (IsSoleOwner(entry.buffer)) {
      stats.idle_bytes += entry.content.size_bytes;
    }
  }
  return stats;
}

uint64_t ContentCache::revision() const {
  MutexLock lock(&mu_);
  return revision_;
}

}  // namespace djinn::worker
