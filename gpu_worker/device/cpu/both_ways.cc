#include "gpu_worker/device/cpu/both_ways.h"

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>

#include "common/srg/structure.h"
#include "gpu_worker/device/cpu/made_up.h"
#include "gpu_worker/device/cpu/thread_scope.h"
#include "gpu_worker/device/torch/torch_buffer.h"
#include "gpu_worker/device/torch/torch_error.h"

namespace djinn::worker {
namespace {

using Slots = std::vector<std::shared_ptr<Buffer>>;

const TorchBuffer& AsTorch(const Buffer& buffer) {
  return static_cast<const TorchBuffer&>(buffer);
}

// What a trial works on; nothing if that is too large, or there is no memory
// for it.
std::optional<Slots> MakeUpSlots(absl::Span<const TypedSlot> operands,
                                 absl::Span<const std::shared_ptr<Buffer>> all,
                                 uint64_t seed) {
  size_t bytes = 0;
  for (const TypedSlot& operand : operands) {
    if (operand.slot >= all.size() || all[operand.slot] == nullptr) {
      return std::nullopt;
    }
    bytes += all[operand.slot]->size_bytes();
  }
  if (bytes > AloneTrial::kMaxOperandBytes) return std::nullopt;
  Slots slots(all.size());
  const absl::Status made = CatchTorch("OPERATOR_FAILED", [&] {
    for (const TypedSlot& operand : operands) {
      slots[operand.slot] =
          MakeUp(operand.type, all[operand.slot]->size_bytes(),
                 (seed << 32) + operand.slot, MadeUpRange::kPositive);
    }
    return absl::OkStatus();
  });
  if (!made.ok()) return std::nullopt;
  return slots;
}

struct Outcome {
  absl::Status status;
  uint64_t nanoseconds = 0;
};

Outcome Time(RunFunction run, bool one_thread, const NodeInput& input,
             std::vector<NodeResult>* results) {
  const ThreadScope threads(one_thread);
  const auto start = std::chrono::steady_clock::now();
  Outcome outcome;
  outcome.status = run(input, results);
  const std::chrono::nanoseconds took =
      std::chrono::steady_clock::now() - start;
  outcome.nanoseconds = static_cast<uint64_t>(took.count());
  return outcome;
}

// False where the bits differ.
bool CompareBytes(const Buffer& together, const Buffer& alone,
                  size_t element_size, AloneTrial::Comparison* comparison) {
  const size_t bytes = together.size_bytes();
  if (alone.size_bytes() != bytes) return false;
  if (bytes == 0) return true;
  CountTelling(AsTorch(together).data(), bytes, element_size, comparison);
  return std::memcmp(AsTorch(together).data(), AsTorch(alone).data(), bytes) ==
         0;
}

}  // namespace

absl::Status CarryOutBothWays(absl::Span<const TypedSlot> operands,
                              absl::Span<const uint32_t> written,
                              const NodeInput& input, RunFunction run,
                              RunFunction run_alone, AloneTrial* trial,
                              std::vector<NodeResult>* results) {
  const uint64_t seed = trial->runs();
  const std::optional<Slots> together_slots =
      MakeUpSlots(operands, input.slots, seed);
  const std::optional<Slots> alone_slots =
      MakeUpSlots(operands, input.slots, seed);
  const Outcome first = Time(run, /*one_thread=*/false, input, results);
  const absl::Status& status = first.status;
  if (!status.ok() || !together_slots.has_value() || !alone_slots.has_value()) {
    trial->GiveUp();
    return status;
  }
  NodeInput together_input = input, alone_input = input;
  together_input.slots = *together_slots;
  alone_input.slots = *alone_slots;
  std::vector<NodeResult> together_made, alone_made;
  const Outcome alone =
      Time(run_alone, /*one_thread=*/true, alone_input, &alone_made);
  const absl::Status together = run(together_input, &together_made);
  if (!together.ok()) {
    trial->GiveUp();
    return absl::OkStatus();
  }
  if (!alone.status.ok() || together_made.size() != alone_made.size()) {
    trial->Refuse();
    return absl::OkStatus();
  }

  AloneTrial::Comparison comparison;
  comparison.equal = true;
  // Not what made-up operands took: whom the run woke is awake then.
  comparison.together_nanoseconds = first.nanoseconds;
  comparison.alone_nanoseconds = alone.nanoseconds;
  size_t bytes = 0;
  for (size_t i = 0; i < together_made.size() && comparison.equal; ++i) {
    const NodeResult& result = together_made[i];
    const NodeResult& other = alone_made[i];
    // A view of an operand is no work for threads.
    if (result.buffer == nullptr || result.aliased_slot.has_value()) continue;
    bytes += result.buffer->size_bytes();
    comparison.equal =
        other.buffer != nullptr && other.view == result.view &&
        CompareBytes(
            *result.buffer, *other.buffer,
            static_cast<size_t>(srg::ElementSize(result.view.data_type)),
            &comparison);
  }
  for (const uint32_t slot : written) {
    // Of what type is not asked: most tensors that are written are float32.
    comparison.equal =
        comparison.equal &&
        CompareBytes(*(*together_slots)[slot], *(*alone_slots)[slot],
                     sizeof(float), &comparison);
  }
  if (bytes > AloneTrial::kMaxBytes) {
    trial->GiveUp();
  } else {
    trial->Compared(comparison);
  }
  return absl::OkStatus();
}

}  // namespace djinn::worker
