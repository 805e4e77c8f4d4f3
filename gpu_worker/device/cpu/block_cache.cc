#include "gpu_worker/device/cpu/block_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>
#include <utility>

namespace djinn::worker {
namespace {

constexpr size_t kClassesPerDoubling = 8;
// Number of idle blocks among which Take() looks for one of the same owner.
constexpr size_t kLookedAt = 16;

// Returns null on failure.
void* Map(size_t bytes) {
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return mapped == MAP_FAILED ? nullptr : mapped;
}

void Unmap(const std::vector<std::pair<void*, size_t>>& blocks) {
  for (const auto& [block, bytes] : blocks) munmap(block, bytes);
}

}  // namespace

BlockCache::~BlockCache() { Shrink(0); }

size_t BlockCache::BlockBytes(size_t bytes) {
  // Rounds up to the next of eight steps between powers of two.
  const size_t step = std::bit_floor(bytes) / kClassesPerDoubling;
  return (bytes + step - 1) / step * step;
}

BlockCache::Block BlockCache::Take(size_t bytes, uint64_t owner) {
  const size_t block_bytes = BlockBytes(bytes);
  {
    MutexLock lock(&mu_);
    const auto found = classes_.find(block_bytes);
    if (found != classes_.end() && !found->second.idle.empty()) {
      Class& of = found->second;
      const size_t looked_at = std::min(kLookedAt, of.idle.size());
      const auto last = of.idle.rbegin() + static_cast<ptrdiff_t>(looked_at);
      auto own = std::find_if(
          of.idle.rbegin(), last,
          [owner](const Idle& idle) { return idle.owner == owner; });
      if (own == last) own = of.idle.rbegin();
      const Idle idle = *own;
      of.idle.erase(std::next(own).base());
      of.unused = std::min(of.unused, of.idle.size());
      idle_bytes_ -= block_bytes;
      taken_.emplace(idle.data, Taken{block_bytes, owner});
      return {idle.data, idle.owner != owner || owner == kNobody};
    }
  }
  void* block = Map(block_bytes);
  if (block == nullptr) {
    Shrink(0);
    block = Map(block_bytes);
    if (block == nullptr) return {};
  }
  MutexLock lock(&mu_);
  taken_.emplace(block, Taken{block_bytes, owner});
  return {block, false};
}

size_t BlockCache::Return(void* block, uint64_t most_idle) {
  size_t bytes;
  {
    MutexLock lock(&mu_);
    const auto found = taken_.find(block);
    if (found == taken_.end()) return 0;
    bytes = found->second.bytes;
    const uint64_t owner = found->second.owner;
    taken_.erase(found);
    if (idle_bytes_ + bytes <= most_idle) {
      classes_[bytes].idle.push_back({block, owner});
      idle_bytes_ += bytes;
      return bytes;
    }
  }
  munmap(block, bytes);
  return bytes;
}

void BlockCache::Remove(size_t bytes, size_t count, Class* of,
                        std::vector<std::pair<void*, size_t>>* removed) {
  const auto end = of->idle.begin() + static_cast<ptrdiff_t>(count);
  for (auto block = of->idle.begin(); block != end; ++block) {
    removed->emplace_back(block->data, bytes);
  }
  of->idle.erase(of->idle.begin(), end);
  of->unused = std::min(of->unused, of->idle.size());
  idle_bytes_ -= count * bytes;
}

void BlockCache::Shrink(uint64_t most_idle) {
  std::vector<std::pair<void*, size_t>> removed;
  {
    MutexLock lock(&mu_);
    for (auto at = classes_.rbegin();
         at != classes_.rend() && idle_bytes_ > most_idle; ++at) {
      auto& [bytes, of] = *at;
      const uint64_t surplus = (idle_bytes_ - most_idle + bytes - 1) / bytes;
      Remove(bytes, std::min<uint64_t>(surplus, of.idle.size()), &of, &removed);
    }
  }
  Unmap(removed);
}

void BlockCache::ReleaseUnused() {
  std::vector<std::pair<void*, size_t>> removed;
  {
    MutexLock lock(&mu_);
    for (auto& [bytes, of] : classes_) {
      Remove(bytes, of.unused, &of, &removed);
      of.unused = of.idle.size();
    }
    std::erase_if(classes_,
                  [](const auto& entry) { return entry.second.idle.empty(); });
  }
  Unmap(removed);
}

uint64_t BlockCache::idle_bytes() const {
  MutexLock lock(&mu_);
  return idle_bytes_;
}

}  // namespace djinn::worker
