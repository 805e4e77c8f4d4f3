// Tracks which chunks of a value arrived. Chunks come in any order, and some
// come twice.
//
// Not thread-safe.
#ifndef CLIENT_LIB_SESSION_STREAM_CHUNK_MAP_H_
#define CLIENT_LIB_SESSION_STREAM_CHUNK_MAP_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/transport/shared_bytes.h"

namespace djinn {

class ChunkMap {
 public:
  explicit ChunkMap(uint64_t bytes)
      : bytes_(bytes),
        taken_((bytes + kBulkChunkBytes - 1) / kBulkChunkBytes, false) {}

  // Returns whether a value of this size has such a chunk.
  bool Fits(uint64_t offset, uint64_t size) const {
    return offset < bytes_ && offset % kBulkChunkBytes == 0 &&
           size == std::min<uint64_t>(kBulkChunkBytes, bytes_ - offset);
  }
  // Returns true once for each chunk. A caller that gets true copies the bytes
  // and then calls Copied().
  bool Take(uint64_t offset) {
    std::vector<bool>::reference chunk = taken_[offset / kBulkChunkBytes];
    if (chunk) return false;
    chunk = true;
    return true;
  }
  void Copied() { ++copied_; }
  size_t copied() const { return copied_; }
  bool complete() const { return copied_ == taken_.size(); }

 private:
  const uint64_t bytes_;
  std::vector<bool> taken_;
  size_t copied_ = 0;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_STREAM_CHUNK_MAP_H_
