// Allocates memory of the supervisor that executors may read and that the
// supervisor can take back.
//
// A buffer is an anonymous file. The supervisor writes it, seals it, and lends
// read-only descriptors of it. Once it is sealed, no process can change its
// bytes, not even the supervisor. When the last reference to the buffer is
// released, the supervisor empties the file: its memory is free even if an
// executor still maps it against the rules, and that executor gets SIGBUS.
//
// So the file must stay open to shrinking, and a process that shrinks one in
// use would end all processes that read it, even the supervisor. Two walls
// prevent executors from doing so. The sandbox lets them open no file, so the
// read-only descriptor is the only one that they have. And they cannot pass it
// on, because a worker that keeps contents has no Unix socket for clients
// (../../config.h): outside of the sandbox, a process of root or of the
// supervisor's user could open the file again. The file's mode refuses all
// other users.
#ifndef GPU_WORKER_SUPERVISOR_CONTENTS_LENT_MEMORY_H_
#define GPU_WORKER_SUPERVISOR_CONTENTS_LENT_MEMORY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/transport/shared_memory/shared_region.h"
#include "gpu_worker/device/device.h"

namespace djinn::worker {

// The device of the supervisor's contents. It executes no operators, and has no
// limit. Thread-safe.
class LentMemory final : public Device {
 public:
  // Makes the bytes of the buffer final; they can be read from then on. Returns
  // Internal when the system refuses.
  static absl::Status Seal(Buffer* buffer);
  // Returns a new read-only descriptor of a sealed buffer.
  static absl::StatusOr<Descriptor> Lend(const Buffer& buffer);

  std::string name() const override { return "supervisor"; }
  uint64_t memory_bytes() const override { return UINT64_MAX; }
  // Return zero-filled memory.
  absl::StatusOr<std::shared_ptr<Buffer>> Allocate(uint64_t bytes) override;
  absl::StatusOr<std::shared_ptr<Buffer>> AllocateUnset(
      uint64_t bytes) override {
    return Allocate(bytes);
  }
  // Writes a buffer that is not sealed.
  absl::Status Write(Buffer* buffer, uint64_t offset,
                     absl::string_view bytes) override;
  // Returns the bytes of a sealed buffer.
  absl::StatusOr<SharedBytes> HostBytes(
      std::shared_ptr<Buffer> buffer) override;
  // Return Unimplemented: contents are whole, and nothing computes with them.
  absl::StatusOr<std::shared_ptr<Buffer>> Clone(const Buffer& source,
                                                uint64_t bytes) override;
  absl::StatusOr<SharedBytes> ReadView(std::shared_ptr<Buffer> buffer,
                                       const srg::TensorView& view) override;
  OperatorLibrary* operators() override { return nullptr; }
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_CONTENTS_LENT_MEMORY_H_
