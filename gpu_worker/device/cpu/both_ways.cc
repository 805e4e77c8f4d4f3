#include "gpu_worker/device/cpu/both_ways.h"

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>

#include "common/srg/structure.h"
#include "gpu_worker/device/cpu/thread_scope.h"
#include "gpu_worker/device/cpu/torch_buffer.h"
#include "gpu_worker/device/cpu/torch_error.h"

namespace djinn::worker {
namespace {

using Slots = std::vector<std::shared_ptr<Buffer>>;

const TorchBuffer& AsTorch(const Buffer& buffer) {
  return static_cast<const TorchBuffer&>(buffer);
}

// All slots, those that are written as copies; nothing if those are too large,
// or there is no memory for them.
std::optional<Slots> CopyWritten(
    absl::Span<const uint32_t> written,
    absl::Span<const std::shared_ptr<Buffer>> all) {
  size_t bytes = 0;
  for (const uint32_t slot : written) {
    if (slot >= all.size() || all[slot] == nullptr) return std::nullopt;
    bytes += all[slot]->size_bytes();
  }
  if (bytes > AloneTrial::kMaxBytes) return std::nullopt;
  Slots slots(all.begin(), all.end());
  const absl::Status copied = CatchTorch("OPERATOR_FAILED", [&] {
    for (const uint32_t slot : written) {
      const TorchBuffer& from = AsTorch(*all[slot]);
      c10::Storage storage = UninitialisedStorage(from.size_bytes());
      if (from.size_bytes() > 0) {
        std::memcpy(storage.mutable_data(), from.data(), from.size_bytes());
      }
      slots[slot] = std::make_shared<TorchBuffer>(std::move(storage));
    }
    return absl::OkStatus();
  });
  if (!copied.ok()) return std::nullopt;
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

absl::Status CarryOutBothWays(absl::Span<const uint32_t> written,
                              const NodeInput& input, RunFunction run,
                              AloneTrial* trial,
                              std::vector<NodeResult>* results) {
  const std::optional<Slots> copies = CopyWritten(written, input.slots);
  if (!copies.has_value()) {
    trial->GiveUp();
    return run(input, results);
  }
  NodeInput copied = input;
  copied.slots = *copies;
  std::vector<NodeResult> made;
  const size_t before = results->size();
  Outcome alone, together;
  const bool one_first = trial->OneGoesFirst();
  if (one_first) alone = Time(run, /*one_thread=*/true, copied, &made);
  together = Time(run, /*one_thread=*/false, input, results);
  if (!one_first) alone = Time(run, /*one_thread=*/true, copied, &made);
  if (!together.status.ok() || !alone.status.ok() ||
      results->size() - before != made.size()) {
    trial->GiveUp();
    return together.status;
  }

  AloneTrial::Comparison comparison;
  comparison.equal = true;
  comparison.together_nanoseconds = together.nanoseconds;
  comparison.alone_nanoseconds = alone.nanoseconds;
  size_t bytes = 0;
  for (size_t i = 0; i < made.size() && comparison.equal; ++i) {
    const NodeResult& result = (*results)[before + i];
    // A view of an operand is no work for threads.
    if (result.buffer == nullptr || result.aliased_slot.has_value()) continue;
    bytes += result.buffer->size_bytes();
    comparison.equal =
        made[i].buffer != nullptr && made[i].view == result.view &&
        CompareBytes(
            *result.buffer, *made[i].buffer,
            static_cast<size_t>(srg::ElementSize(result.view.data_type)),
            &comparison);
  }
  for (const uint32_t slot : written) {
    // Of what type is not asked: most tensors that are written are float32.
    comparison.equal =
        comparison.equal && CompareBytes(*input.slots[slot], *(*copies)[slot],
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
