// Records which chunks of a transfer have arrived. Chunks arrive in any order,
// and some of them twice.
//
// Not thread-safe.
#ifndef GPU_WORKER_SESSION_UPLOADS_RECEIVED_CHUNKS_H_
#define GPU_WORKER_SESSION_UPLOADS_RECEIVED_CHUNKS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/transport/shared_bytes.h"

namespace djinn::worker {

class ReceivedChunks {
 public:
  enum class State : uint8_t { kMissing, kWriting, kHere };

  explicit ReceivedChunks(uint64_t size_bytes)
      : size_bytes_(size_bytes),
        states_((size_bytes + kBulkChunkBytes - 1) / kBulkChunkBytes,
                State::kMissing),
        missing_(states_.size()) {}

  // Returns whether the transfer has a chunk of `bytes` at `offset`.
  bool Fits(uint64_t offset, uint64_t bytes) const {
    return offset < size_bytes_ && offset % kBulkChunkBytes == 0 &&
           bytes == std::min<uint64_t>(kBulkChunkBytes, size_bytes_ - offset);
  }
  // Returns the state of the chunk at `offset`, for which Fits() holds.
  State state(uint64_t offset) const {
    return states_[offset / kBulkChunkBytes];
  }
  void SetWriting(uint64_t offset) {
    states_[offset / kBulkChunkBytes] = State::kWriting;
  }
  void SetHere(uint64_t offset) {
    states_[offset / kBulkChunkBytes] = State::kHere;
    --missing_;
    while (prefix_ < states_.size() && states_[prefix_] == State::kHere) {
      ++prefix_;
    }
  }

  bool complete() const { return missing_ == 0; }
  // Returns the position before which all bytes have arrived.
  uint64_t prefix_bytes() const {
    return std::min<uint64_t>(prefix_ * kBulkChunkBytes, size_bytes_);
  }

 private:
  uint64_t size_bytes_;
  std::vector<State> states_;
  size_t missing_;
  size_t prefix_ = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_UPLOADS_RECEIVED_CHUNKS_H_
