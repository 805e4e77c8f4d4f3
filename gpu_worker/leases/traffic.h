// Counts bytes that moved between a session and its client, or another worker.
// Ordered messages count when they are executed or forgotten, graphs supplied
// again when they arrive, replies when they are made, and values when they move
// on Bulk. Bytes sent again after a resume count once, except bulk bytes that
// were under way.
//
// Thread-safe, without locks.
#ifndef GPU_WORKER_LEASES_TRAFFIC_H_
#define GPU_WORKER_LEASES_TRAFFIC_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace djinn::worker {

class Traffic {
 public:
  enum Kind {
    kMessagesIn,
    kBulkIn,
    kMessagesOut,
    kBulkOut,
    // From another worker, for a session that migrated here.
    kMigratedIn
  };
  static constexpr size_t kKinds = 5;

  // Adds all bytes to `total` as well, which must outlive this.
  explicit Traffic(Traffic* total = nullptr) : total_(total) {}

  void Add(Kind kind, uint64_t bytes) {
    bytes_[kind].fetch_add(bytes, std::memory_order_relaxed);
    if (total_ != nullptr) total_->Add(kind, bytes);
  }

  uint64_t bytes(Kind kind) const {
    return bytes_[kind].load(std::memory_order_relaxed);
  }
  // Returns the bytes that the client sent or requested. Leaves out migration,
  // which the client did not request.
  uint64_t bytes() const {
    return bytes(kMessagesIn) + bytes(kBulkIn) + bytes(kMessagesOut) +
           bytes(kBulkOut);
  }

 private:
  Traffic* const total_;
  std::array<std::atomic<uint64_t>, kKinds> bytes_{};
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_LEASES_TRAFFIC_H_
