#include "gpu_worker/device/cpu/product_trial.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "ATen/Parallel.h"
#include "common/status_macros.h"
#include "gpu_worker/device/cpu/made_up.h"
#include "gpu_worker/device/cpu/packed_matrix.h"
#include "gpu_worker/device/cpu/thread_scope.h"
#include "gpu_worker/device/torch/torch_buffer.h"
#include "gpu_worker/device/torch/torch_error.h"

namespace djinn::worker {
namespace {

// Depths of MKL's blocks, the usual one first.
constexpr int64_t kBlocks[] = {384, 256, 192};

// A product carried out by PyTorch.
struct Sample {
  std::vector<std::shared_ptr<Buffer>> slots;
  std::vector<NodeResult> results;
};

std::vector<std::shared_ptr<Buffer>> MakeUpSlots(const PackedCall& call,
                                                 uint64_t seed) {
  std::vector<std::shared_ptr<Buffer>> slots;
  for (const PackedCall::SlotExtent& extent : call.SlotExtents()) {
    if (extent.slot >= slots.size()) slots.resize(extent.slot + 1);
    slots[extent.slot] = MakeUp(srg::DataType::kFloat32, extent.bytes,
                                seed + extent.slot, MadeUpRange::kSigned);
  }
  return slots;
}

uint64_t ElementsOf(const std::vector<NodeResult>& results) {
  if (results.size() != 1 || results[0].buffer == nullptr) return 0;
  return results[0].buffer->size_bytes() / sizeof(float);
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
        plain,
    const ProductFacts* hint) {
  ProductFacts facts;
  const PackedKernel* const kernel = BestPackedKernel();
  uint64_t bytes = 0;
  for (const PackedCall::SlotExtent& extent : call.SlotExtents()) {
    bytes += extent.bytes;
  }
  if (kernel == nullptr) return facts;
  const absl::Status status = CatchTorch("OPERATOR_FAILED", [&] {
    // A few sums end in the same bits by chance.
    std::vector<Sample> samples;
    for (uint64_t elements = 0; elements < kMinTrialElements;) {
      if ((samples.size() + 1) * bytes > kMaxTrialBytes) {
        return absl::OkStatus();
      }
      Sample& sample = samples.emplace_back();
      sample.slots = MakeUpSlots(call, samples.size() << 32);
      NodeInput input;
      input.slots = sample.slots;
      DJINN_RETURN_IF_ERROR(plain(input, &sample.results));
      if (ElementsOf(sample.results) == 0) return absl::OkStatus();
      elements += ElementsOf(sample.results);
    }
    const auto all_same =
        [&](absl::FunctionRef<absl::Status(const Sample& sample,
                                           std::vector<NodeResult>* results)>
                carry_out) -> absl::StatusOr<bool> {
      for (const Sample& sample : samples) {
        std::vector<NodeResult> other;
        DJINN_RETURN_IF_ERROR(carry_out(sample, &other));
        if (!SameBits(sample.results, other)) return false;
      }
      return true;
    };
    if (hint == nullptr || hint->alone_is_equal) {
      DJINN_ASSIGN_OR_RETURN(
          facts.alone_is_equal,
          all_same([&](const Sample& sample, std::vector<NodeResult>* results) {
            const ThreadScope threads(/*one_thread=*/true);
            NodeInput input;
            input.slots = sample.slots;
            return plain(input, results);
          }));
    }
    if (hint != nullptr && !hint->order.has_value()) return absl::OkStatus();
    std::vector<SumOrder> orders =
        OrdersToTry(call.weight().depth, at::get_num_threads());
    if (hint != nullptr) {
      std::stable_partition(
          orders.begin(), orders.end(),
          [&](const SumOrder& order) { return order == *hint->order; });
    }
    std::vector<std::unique_ptr<PackedMatrix>> packed(samples.size());
    if (!call.has_few_rows()) {
      for (size_t i = 0; i < samples.size(); ++i) {
        packed[i] =
            Pack(*kernel, call.weight(), *call.FindWeight(samples[i].slots));
      }
    }
    for (const SumOrder& order : orders) {
      DJINN_ASSIGN_OR_RETURN(
          const bool same,
          all_same([&](const Sample& sample, std::vector<NodeResult>* results) {
            return call.Run(packed[&sample - samples.data()].get(), order,
                            sample.slots, results);
          }));
      if (!same) continue;
      facts.order = order;
      break;
    }
    return absl::OkStatus();
  });
  return status.ok() ? facts : ProductFacts();
}

}  // namespace djinn::worker
