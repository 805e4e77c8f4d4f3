#include "gpu_worker/device/cpu/block_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

namespace djinn::worker {
namespace {

constexpr size_t kClassesPerDoubling = 8;

// The value of MADV_COLLAPSE. Linux has it from 6.1 on; older kernels refuse
// it.
constexpr int kCollapse = 25;

// Maps a block with ordinary pages. Aligns it to a huge page if it is at least
// that large. Returns null on failure.
void* Map(size_t bytes) {
  constexpr size_t kAlignment = BlockCache::kHugePage;
  const size_t slack = bytes < kAlignment ? 0 : kAlignment;
  void* const mapped = mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  if (slack == 0) return mapped;
  char* const begin = static_cast<char*>(mapped);
  const size_t front =
      (kAlignment - reinterpret_cast<uintptr_t>(begin) % kAlignment) %
      kAlignment;
  if (front > 0) munmap(begin, front);
  munmap(begin + front + bytes, slack - front);
  return begin + front;
}

void Unmap(const std::vector<std::pair<void*, size_t>>& blocks) {
  for (const auto& [block, bytes] : blocks) munmap(block, bytes);
}

}  // namespace

BlockCache::~BlockCache() { Shrink(0); }

void BlockCache::MoveByKernel(void* begin, size_t bytes) {
  // Ignores errors: the blocks then keep their ordinary pages.
  for (size_t done = 0; done < bytes; done += kHugePage) {
    (void)madvise(static_cast<char*>(begin) + done, kHugePage, kCollapse);
  }
}

void BlockCache::NoteTaken(void* block, size_t bytes) {
  taken_.emplace(block, bytes);
  if (bytes >= kHugePage) large_.emplace(block, Large{.bytes = bytes});
}

void BlockCache::MoveLasting(size_t most_bytes) {
  std::vector<std::pair<void*, size_t>> pieces;
  {
    MutexLock lock(&mu_);
    for (auto& [block, large] : large_) {
      if (!std::exchange(large.lasting, true)) continue;
      const size_t left = large.bytes / kHugePage * kHugePage - large.moved;
      const size_t piece = std::min(left, most_bytes / kHugePage * kHugePage);
      if (piece == 0) continue;
      pieces.emplace_back(static_cast<char*>(block) + large.moved, piece);
      large.moved += piece;
      most_bytes -= piece;
    }
  }
  for (const auto& [begin, bytes] : pieces) move_(begin, bytes);
}

size_t BlockCache::BlockBytes(size_t bytes) {
  // Rounds up to the next of eight steps between powers of two.
  const size_t step = std::bit_floor(bytes) / kClassesPerDoubling;
  return (bytes + step - 1) / step * step;
}

void* BlockCache::Take(size_t bytes) {
  const size_t block_bytes = BlockBytes(bytes);
  {
    MutexLock lock(&mu_);
    const auto found = classes_.find(block_bytes);
    if (found != classes_.end() && !found->second.idle.empty()) {
      Class& of = found->second;
      void* const block = of.idle.back();
      of.idle.pop_back();
      of.unused = std::min(of.unused, of.idle.size());
      idle_bytes_ -= block_bytes;
      NoteTaken(block, block_bytes);
      return block;
    }
  }
  void* block = Map(block_bytes);
  if (block == nullptr) {
    Shrink(0);
    block = Map(block_bytes);
    if (block == nullptr) return nullptr;
  }
  MutexLock lock(&mu_);
  NoteTaken(block, block_bytes);
  return block;
}

size_t BlockCache::Return(void* block, uint64_t most_idle) {
  size_t bytes;
  {
    MutexLock lock(&mu_);
    const auto found = taken_.find(block);
    if (found == taken_.end()) return 0;
    bytes = found->second;
    taken_.erase(found);
    large_.erase(block);
    if (idle_bytes_ + bytes <= most_idle) {
      classes_[bytes].idle.push_back(block);
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
    removed->emplace_back(*block, bytes);
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
