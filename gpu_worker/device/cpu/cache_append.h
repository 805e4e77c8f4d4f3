// Appending in place: a `cat` of a tensor that nobody needs any more with a
// little that is new, as a decoder makes of its keys and values with every
// token.
//
// PyTorch copies all of it. Here the result gets room behind each of its blocks
// (what the dimension that grows and those behind it number), a quarter more
// than it has, and the next one like it writes into that and takes the memory
// over. The first of a loop is an ordinary one; who appends to what was
// appended to goes on. The bytes are the same, and so is what every reader
// sees: attention, which a decoder calls next, takes keys and values where they
// are, in blocks; anybody else gets them together, which costs the copy that
// was saved. Where that keeps happening, calls that look alike are left to
// PyTorch for a while.
//
// Only for operands that die with the node and that nobody shares: what a
// program still holds is copied, as ever.
#ifndef GPU_WORKER_DEVICE_CPU_CACHE_APPEND_H_
#define GPU_WORKER_DEVICE_CPU_CACHE_APPEND_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/function_schema.h"
#include "common/mutex.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/device/operator_library.h"
#include "gpu_worker/device/torch/call_template.h"
#include "gpu_worker/device/torch/torch_buffer.h"
#include "gpu_worker/device/torch/torch_call.h"

namespace djinn::worker {

// How it went with calls that look alike. Thread-safe.
class AppendRecord {
 public:
  // After so many that were left alone it is tried anew: another program may
  // do otherwise.
  static constexpr uint32_t kRest = 256;

  void AppendedInPlace() { in_place_.fetch_add(1, std::memory_order_relaxed); }
  void LostRoom() { lost_.fetch_add(1, std::memory_order_relaxed); }
  // Whether room is to be made for a call: as far as anybody knows, it pays
  // off.
  bool IsDue();

 private:
  std::atomic<uint32_t> in_place_{0};
  std::atomic<uint32_t> lost_{0};
  std::atomic<uint32_t> left_alone_{0};
};

// What all rooms of a device take. Thread-safe; rooms may outlive it.
class AppendRooms {
 public:
  struct Counts {
    std::atomic<uint64_t> in_place{0};
    std::atomic<uint64_t> lost{0};
    std::atomic<uint64_t> bytes{0};
  };

  // At most `max_bytes` together; 0: nothing is appended in place.
  explicit AppendRooms(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  bool enabled() const { return max_bytes_ > 0; }
  // As Device::SetSpareMemory(); without it only the own limit holds.
  void SetSpareMemory(SpareMemory* spare);

  // Null when there is no room to spare.
  std::unique_ptr<PitchRoom> Reserve(const std::string& tenant, uint64_t bytes,
                                     std::shared_ptr<AppendRecord> record);

  Counts& counts() const { return *counts_; }

 private:
  const uint64_t max_bytes_;
  const std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
  Mutex mu_;
  SpareMemory* spare_ ABSL_GUARDED_BY(mu_) = nullptr;
};

class CacheAppend {
 public:
  // Nothing unless the call is such a `cat`, of so much that it is worth while.
  static std::optional<CacheAppend> Match(const c10::FunctionSchema& schema,
                                          const CallTemplate& call);

  // Carries the call out: true, and its result is appended to `results`. False,
  // and nothing has happened, where it has to be carried out as it is. May
  // throw c10::Error, with nothing done. Under c10::InferenceMode.
  bool Run(const NodeInput& input, const std::shared_ptr<AppendRecord>& record,
           AppendRooms* rooms, std::vector<NodeResult>* results) const;
  // Marks the result of a call that was carried out as it is, so that the next
  // one in its loop is recognised.
  void Mark(const NodeInput& input, std::vector<NodeResult>* results) const;

 private:
  CacheAppend() = default;
  // The operand's buffer, where it may be taken over.
  const TorchBuffer* Dying(const NodeInput& input) const;
  void WriteNew(const NodeInput& input, const TorchBuffer::Blocks& to) const;

  Operand grows_;
  std::vector<Operand> added_;
  // The result.
  srg::TensorView view_;
  size_t dimension_ = 0;
  // Blocks before and behind the call, and what a step along the dimension
  // takes.
  uint64_t blocks_ = 0;
  uint64_t block_bytes_ = 0;
  uint64_t added_bytes_ = 0;
  uint64_t step_bytes_ = 0;
};

// Whether calls of an operator may take operands that lie in blocks: always,
// where what they compute does not depend on how far the blocks are apart;
// where sums may be taken in another order; or not at all.
TorchCall::Blocks BlocksTakenBy(const c10::FunctionSchema& schema);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_CACHE_APPEND_H_
