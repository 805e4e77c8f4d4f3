// The interface of a device, which holds memory and runs operators.
// Implementations: cpu/ (PyTorch on the CPU), fake/ (plain memory and a handful
// of operators, for tests), cuda (a plug-in).
#ifndef GPU_WORKER_DEVICE_DEVICE_H_
#define GPU_WORKER_DEVICE_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/srg/graph.h"
#include "common/transport/shared_bytes.h"

namespace djinn::worker {

class OperatorLibrary;

// A piece of device memory with a fixed size. Owned through shared_ptr: every
// holder of a reference may read it. Only a lone holder (IsSoleOwner()) may
// write it; others copy it first.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual uint64_t size_bytes() const = 0;
};

// Whether `buffer` is the only reference, so that its owner may write or drop
// the buffer. Reads of former holders happened before: use_count() alone orders
// nothing. False for null.
inline bool IsSoleOwner(const std::shared_ptr<Buffer>& buffer) {
  if (buffer.use_count() != 1) return false;
  std::atomic_thread_fence(std::memory_order_acquire);
  return true;
}

// Whether the view's elements lie in the storage in the view's own order,
// without gaps, to be read as they are.
bool IsPlainContiguous(const srg::TensorView& view);

// Where a device gets memory that it takes to be faster, and gives back when it
// is asked to. Thread-safe.
class SpareMemory {
 public:
  virtual ~SpareMemory() = default;
  // Sets bytes aside, at the tenant's expense, until the result is destroyed.
  // Null when there are none to spare.
  virtual std::shared_ptr<void> Reserve(const std::string& tenant,
                                        uint64_t bytes) = 0;
};

// Thread-safe where not said otherwise.
class Device {
 public:
  virtual ~Device() = default;

  // "cpu", "cuda:0", "fake".
  virtual std::string name() const = 0;
  virtual uint64_t memory_bytes() const = 0;

  // Zero-filled memory. ResourceExhausted when the device itself is full; the
  // ledger's limits were checked before.
  virtual absl::StatusOr<std::shared_ptr<Buffer>> Allocate(uint64_t bytes) = 0;
  // The same with whatever was in it, for bytes that replace all of it before
  // anybody reads it.
  virtual absl::StatusOr<std::shared_ptr<Buffer>> AllocateUnset(
      uint64_t bytes) = 0;

  // A copy of `source`'s first bytes in a buffer of `bytes`; the rest is zero.
  virtual absl::StatusOr<std::shared_ptr<Buffer>> Clone(const Buffer& source,
                                                        uint64_t bytes) = 0;

  // Copies host bytes to `offset`. The range lies inside the buffer.
  virtual absl::Status Write(Buffer* buffer, uint64_t offset,
                             absl::string_view bytes) = 0;

  // The whole contents as host bytes for hashing; valid while `buffer` lives,
  // where it is not written.
  virtual absl::StatusOr<SharedBytes> HostBytes(
      std::shared_ptr<Buffer> buffer) = 0;

  // The same of a part, which lies inside the buffer. Where a device is far
  // from the host, no more than the part is fetched.
  virtual absl::StatusOr<SharedBytes> HostRange(std::shared_ptr<Buffer> buffer,
                                                uint64_t offset,
                                                uint64_t bytes);

  // The view's elements, contiguous in the view's order, conjugation and
  // negation applied. The extent was checked against the buffer. Keeps a
  // reference to the buffer in place of a copy where IsPlainContiguous(view);
  // otherwise the caller has reserved the copy's bytes.
  virtual absl::StatusOr<SharedBytes> ReadView(std::shared_ptr<Buffer> buffer,
                                               const srg::TensorView& view) = 0;

  virtual OperatorLibrary* operators() = 0;

  // Whether a node is done when CompiledProgram::Execute() returns, so that
  // clocks around the call measure it.
  virtual bool times_nodes() const { return false; }

  // Not OK once the device cannot be used any more in this process: every call
  // then fails with this status. Cheap.
  virtual absl::Status Health() const { return absl::OkStatus(); }

  // Returns the device's own counters, for operators of a cluster. Names are
  // lower_snake_case and stay the same.
  virtual std::vector<std::pair<std::string, uint64_t>> Counts() const {
    return {};
  }

  // Where spare memory comes from; null at first and in the end: from nowhere.
  // Outlives everything reserved from it.
  virtual void SetSpareMemory(SpareMemory* /*spare*/) {}
  // Gives back up to `bytes` or a little more of it, what was not used for the
  // longest time first. Returns how many came free.
  virtual uint64_t ReleaseSpareMemory(uint64_t /*bytes*/) { return 0; }

  // Gives back to the system the memory that was kept for the next buffer and
  // not needed since the last call, and may move lasting memory to where reads
  // are faster. The worker calls it every few seconds, beside everything else.
  virtual void ReleaseUnusedMemory() {}
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_DEVICE_H_
