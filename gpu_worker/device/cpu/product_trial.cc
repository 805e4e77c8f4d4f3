#include "gpu_worker/device/cpu/product_trial.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "ATen/Parallel.h"
#include "common/status_macros.h"
#include "gpu_worker/device/cpu/packed_matrix.h"
#include "gpu_worker/device/cpu/thread_scope.h"
#include "gpu_worker/device/cpu/torch_buffer.h"
#include "gpu_worker/device/cpu/torch_error.h"

namespace djinn::worker {
namespace {

// Depths of MKL's blocks, the usual one first.
constexpr int64_t kBlocks[] = {384, 256, 192};

// Numbers between -1 and 1 with all their bits.
void MakeUp(uint64_t seed, float* values, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    // SplitMix64 (Steele, Lea and Flood, 2014).
    uint64_t bits = (seed += 0x9e3779b97f4a7c15);
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
    values[i] = static_cast<float>(static_cast<int32_t>(bits >> 32)) * 0x1p-31f;
  }
}

std::vector<std::shared_ptr<Buffer>> MakeUpSlots(const PackedCall& call) {
  std::vector<std::shared_ptr<Buffer>> slots;
  for (const PackedCall::SlotExtent& extent : call.SlotExtents()) {
    if (extent.slot >= slots.size()) slots.resize(extent.slot + 1);
    c10::Storage storage = UninitialisedStorage(extent.bytes);
    MakeUp(extent.slot, static_cast<float*>(storage.mutable_data()),
           extent.bytes / sizeof(float));
    slots[extent.slot] = std::make_shared<TorchBuffer>(std::move(storage));
  }
  return slots;
}

bool SameBits(const std::vector<NodeResult>& first,
              const std::vector<NodeResult>& second) {
  if (first.size() != 1 || second.size() != 1 ||
      first[0].view != second[0].view || first[0].buffer == nullptr ||
      second[0].buffer == nullptr) {
    return false;
  }
  const auto& a = static_cast<const TorchBuffer&>(*first[0].buffer);
  const auto& b = static_cast<const TorchBuffer&>(*second[0].buffer);
  return a.size_bytes() == b.size_bytes() &&
         std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

std::unique_ptr<PackedMatrix> Pack(const PackedKernel& kernel,
                                   const MatrixLayout& layout,
                                   const TorchBuffer& weight) {
  auto packed = std::make_unique<PackedMatrix>(
      kernel, layout, UninitialisedStorage(PackedMatrix::Bytes(kernel, layout)),
      /*paid_for=*/nullptr);
  packed->Pack(reinterpret_cast<const float*>(weight.data()), UINT64_MAX);
  return packed;
}

}  // namespace

std::vector<SumOrder> OrdersToTry(int64_t depth, int threads) {
  std::vector<SumOrder> orders;
  const auto add = [&](int64_t parts, int64_t block) {
    const SumOrder order{parts, block};
    if (std::find(orders.begin(), orders.end(), order) == orders.end()) {
      orders.push_back(order);
    }
  };
  for (int64_t parts = 1; parts <= std::min<int64_t>(threads, depth);
       parts *= 2) {
    const int64_t part = SumOrder{parts}.PartOf(depth);
    for (const int64_t block : kBlocks) {
      if (part <= block) {
        add(parts, part);
      } else if (part <= 2 * block) {
        add(parts, (part + 1) / 2);
      }
      if (part > block) add(parts, block);
    }
    add(parts, part);
  }
  return orders;
}

ProductFacts TryProduct(
    const PackedCall& call,
    absl::FunctionRef<absl::Status(const NodeInput& input,
                                   std::vector<NodeResult>* results)>
        plain) {
  ProductFacts facts;
  const PackedKernel* const kernel = BestPackedKernel();
  uint64_t bytes = 0;
  for (const PackedCall::SlotExtent& extent : call.SlotExtents()) {
    bytes += extent.bytes;
  }
  if (kernel == nullptr || bytes > kMaxTrialBytes) return facts;
  const absl::Status status = CatchTorch("OPERATOR_FAILED", [&] {
    const std::vector<std::shared_ptr<Buffer>> slots = MakeUpSlots(call);
    NodeInput input;
    input.slots = slots;
    std::vector<NodeResult> together, other;
    DJINN_RETURN_IF_ERROR(plain(input, &together));
    {
      const ThreadScope threads(/*one_thread=*/true);
      DJINN_RETURN_IF_ERROR(plain(input, &other));
    }
    facts.alone_is_equal = SameBits(together, other);
    const std::unique_ptr<PackedMatrix> packed =
        call.has_few_rows()
            ? nullptr
            : Pack(*kernel, call.weight(), *call.FindWeight(slots));
    for (const SumOrder& order :
         OrdersToTry(call.weight().depth, at::get_num_threads())) {
      other.clear();
      DJINN_RETURN_IF_ERROR(call.Run(packed.get(), order, slots, &other));
      if (SameBits(together, other)) {
        facts.order = order;
        break;
      }
    }
    return absl::OkStatus();
  });
  return status.ok() ? facts : ProductFacts();
}

}  // namespace djinn::worker
