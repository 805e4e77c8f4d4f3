// Defines the interface of a device, which holds memory and runs operators.
// Implementations: cpu/ (PyTorch on the CPU), cuda/ (a plug-in), fake/ (plain
// memory and a handful of operators, for tests).
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

// A piece of device memory with a fixed size, owned through shared_ptr. Every
// holder of a reference may read it. Only a sole holder (IsSoleOwner()) may
// write it; others copy it first.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual uint64_t size_bytes() const = 0;
};

// Returns whether `buffer` is the only reference, so that its owner may write
// or drop the buffer; false for null. The fence orders the reads of earlier
// holders before the owner's writes; use_count() alone orders nothing.
inline bool IsSoleOwner(const std::shared_ptr<Buffer>& buffer) {
  if (buffer.use_count() != 1) return false;
  std::atomic_thread_fence(std::memory_order_acquire);
  return true;
}

// Returns whether the view's elements lie in the storage in the view's own
// order, without gaps, and can be read as they are.
bool IsPlainContiguous(const srg::TensorView& view);

// Provides memory that makes a device faster and that the device returns on
// request. Thread-safe.
class SpareMemory {
 public:
  virtual ~SpareMemory() = default;
  // Reserves bytes, charged to the tenant, until the result is destroyed.
  // Returns null when there are none to spare.
  virtual std::shared_ptr<void> Reserve(const std::string& tenant,
                                        uint64_t bytes) = 0;
};

// Thread-safe unless a function says otherwise.
class Device {
 public:
  virtual ~Device() = default;

  // Returns "cpu", "cuda:0", "fake".
  virtual std::string name() const = 0;
  virtual uint64_t memory_bytes() const = 0;
  // Returns the PCI address of a GPU, such as "0000:17:00.0"; empty when the
  // device is none, or does not know it.
  virtual std::string bus_id() const { return ""; }

  // Returns zero-filled memory. Returns ResourceExhausted when the device
  // itself is full; the caller has checked the ledger's limits.
  virtual absl::StatusOr<std::shared_ptr<Buffer>> Allocate(uint64_t bytes) = 0;
  // Returns uninitialized memory. The caller overwrites all of it before
  // anything reads it.
  virtual absl::StatusOr<std::shared_ptr<Buffer>> AllocateUnset(
      uint64_t bytes) = 0;

  // Copies `source`'s first bytes to a buffer of `bytes`; the rest is zero.
  virtual absl::StatusOr<std::shared_ptr<Buffer>> Clone(const Buffer& source,
                                                        uint64_t bytes) = 0;

  // Copies host bytes to `offset`. The range lies inside the buffer.
  virtual absl::Status Write(Buffer* buffer, uint64_t offset,
                             absl::string_view bytes) = 0;

  // Returns the whole contents as host bytes for hashing. They stay valid while
  // `buffer` lives and is not written.
  virtual absl::StatusOr<SharedBytes> HostBytes(
      std::shared_ptr<Buffer> buffer) = 0;

  // Returns a range of the contents, which lies inside the buffer, as
  // HostBytes(). A device with memory of its own transfers only this range.
  virtual absl::StatusOr<SharedBytes> HostRange(std::shared_ptr<Buffer> buffer,
                                                uint64_t offset,
                                                uint64_t bytes);

  // Returns the view's elements, contiguous in the view's order, with
  // conjugation and negation applied. The caller has checked the extent against
  // the buffer. If IsPlainContiguous(view), the device makes no copy in its own
  // memory, and one in host memory returns a reference to the buffer. Otherwise
  // the caller has reserved the copy's bytes.
  virtual absl::StatusOr<SharedBytes> ReadView(std::shared_ptr<Buffer> buffer,
                                               const srg::TensorView& view) = 0;

  virtual OperatorLibrary* operators() = 0;

  // Returns whether a node is done when CompiledProgram::Execute() returns, so
  // that clocks around the call measure it.
  virtual bool times_nodes() const { return false; }

  // Returns an error once this process cannot use the device any more: every
  // call then fails with this status. Cheap.
  virtual absl::Status Health() const { return absl::OkStatus(); }

  // Returns the device's own counters, for the people who run the cluster.
  // Their names are lower_snake_case and stay the same.
  virtual std::vector<std::pair<std::string, uint64_t>> Counts() const {
    return {};
  }

  // Sets the source of spare memory; null means none. The initial source is
  // null. The caller sets null before it destroys the source. `spare` outlives
  // all that was reserved from it.
  virtual void SetSpareMemory(SpareMemory* /*spare*/) {}
  // Releases spare memory, the least recently used first, until `bytes` or a
  // little more are free. Memory in use stays. Returns the number of bytes
  // released.
  virtual uint64_t ReleaseSpareMemory(uint64_t /*bytes*/) { return 0; }

  // Returns to the system the memory that was kept for later buffers and not
  // needed since the last call. The worker calls it every few seconds,
  // concurrently with all other calls.
  virtual void ReleaseUnusedMemory() {}
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_DEVICE_H_
