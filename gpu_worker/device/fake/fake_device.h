// Implements a device of plain memory with a handful of operators over
// contiguous float32 views, for tests of everything above the Device interface.
//
//   fake::add(x, y|float) -> r      fake::add_(x!, y|float)
//   fake::fill_(x!, float)          overwrites x
//   fake::scale(x, w) -> r          x times the first element of w, a product
//   fake::draw(n) -> r              n numbers from the implicit generator
//   fake::fail(x) -> r              fails, fake::fail_(x!) after writing
//   fake::throw(x) -> r             throws an exception
//   fake::wrong_shape(x) -> r       returns one element too many
//   fake::alias(x) -> r             returns x itself
//   fake::nonzero(x) -> r           data-dependent shape
//   fake::refused(x) -> r           not on the allow-list
//   fake::late(x) -> r              as fake::add(x, 0), but fails when the run
//                                   settles if x begins with a number below 0
//
// A generator's state is one uint64, the next number it draws.
//
// Thread-safe.
#ifndef GPU_WORKER_DEVICE_FAKE_FAKE_DEVICE_H_
#define GPU_WORKER_DEVICE_FAKE_FAKE_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/mutex.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/device/operator_library.h"

namespace djinn::worker {

// The schema hash of every fake operator.
inline constexpr uint64_t kFakeSchemaHash = 0xfa4e;

class FakeDevice : public Device {
 public:
  explicit FakeDevice(uint64_t memory_bytes);
  ~FakeDevice() override;

  std::string name() const override { return "fake"; }
  uint64_t memory_bytes() const override { return memory_bytes_; }
  absl::StatusOr<std::shared_ptr<Buffer>> Allocate(uint64_t bytes) override;
  // Returns memory filled with bytes that no test sends.
  absl::StatusOr<std::shared_ptr<Buffer>> AllocateUnset(
      uint64_t bytes) override;
  absl::StatusOr<std::shared_ptr<Buffer>> Clone(const Buffer& source,
                                                uint64_t bytes) override;
  absl::Status Write(Buffer* buffer, uint64_t offset,
                     absl::string_view bytes) override;
  absl::StatusOr<SharedBytes> HostBytes(
      std::shared_ptr<Buffer> buffer) override;
  absl::StatusOr<SharedBytes> ReadView(std::shared_ptr<Buffer> buffer,
                                       const srg::TensorView& view) override;
  OperatorLibrary* operators() override { return operators_.get(); }
  // Returns true once TimeNodes() was called.
  bool times_nodes() const override { return times_nodes_; }
  void TimeNodes() { times_nodes_ = true; }

  // Sets a function that is called before each node, in the executing thread,
  // with the operator's name; an error makes the node fail. For blocking,
  // counting and injected faults.
  void SetExecuteHook(std::function<absl::Status(const std::string&)> hook);
  absl::Status RunExecuteHook(const std::string& name);

  // Makes the device unusable: every later call fails with `why`.
  void Break(absl::Status why);
  absl::Status Health() const override;

  // Makes every run settle with `status`.
  void SetSettleStatus(absl::Status status);
  absl::Status settle_status();
  // Returns how often runs settled.
  uint64_t settled() const { return settled_; }
  void CountSettled() { ++settled_; }

  void ReleaseUnusedMemory() override { ++tidied_; }
  // Returns how often ReleaseUnusedMemory() was called.
  uint64_t tidied() const { return tidied_; }

  // Returns what the last node might take at once (NodeInput::most_bytes).
  uint64_t most_bytes() const { return most_bytes_; }
  void NoteMostBytes(uint64_t bytes) { most_bytes_ = bytes; }

  // Returns the bytes of all live buffers.
  uint64_t live_bytes() const;

 private:
  struct Usage;

  const uint64_t memory_bytes_;
  std::atomic<bool> times_nodes_{false};
  std::atomic<uint64_t> tidied_{0};
  std::atomic<uint64_t> most_bytes_{0};
  const std::shared_ptr<Usage> usage_;
  std::unique_ptr<OperatorLibrary> operators_;
  std::atomic<uint64_t> settled_{0};
  mutable Mutex mu_;
  absl::Status health_ ABSL_GUARDED_BY(mu_);
  absl::Status settle_status_ ABSL_GUARDED_BY(mu_);
  std::function<absl::Status(const std::string&)> hook_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_FAKE_FAKE_DEVICE_H_
