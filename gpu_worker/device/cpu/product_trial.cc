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
  // Where it is to be.
  std::unique_ptr<PackedMatrix> packed;
};

using Plain = absl::FunctionRef<absl::Status(const NodeInput& input,
                                             std::vector<NodeResult>* results)>;

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

// Such that no product is large enough for a float. What is left of a sum is a
// zero with the sign of its last term, or of what it is added to.
std::vector<std::shared_ptr<Buffer>> MakeUpVanishing(const PackedCall& call,
                                                     uint64_t seed) {
  std::vector<std::shared_ptr<Buffer>> slots = MakeUpSlots(call, seed);
  for (const std::shared_ptr<Buffer>& slot : slots) {
    if (slot == nullptr) continue;
    auto* const values =
        reinterpret_cast<float*>(static_cast<TorchBuffer&>(*slot).data());
    for (size_t i = 0; i < slot->size_bytes() / sizeof(float); ++i) {
      values[i] *= 1e-30f;
    }
  }
  const std::optional<PackedCall::Operands> operands = call.FindOperands(slots);
  if (operands.has_value() && operands->bias != nullptr) {
    std::fill_n(const_cast<float*>(operands->bias), call.weight().width, -0.0f);
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

// Ways to carry out a product, compared with PyTorch's.
class Trial {
 public:
  Trial(const PackedCall& call, const PackedKernel& kernel, Plain plain)
      : call_(call), kernel_(kernel), plain_(plain) {
    for (const PackedCall::SlotExtent& extent : call.SlotExtents()) {
      bytes_ += extent.bytes;
    }
  }

  // On other operands from now on, with so many results that few of them are
  // the same by chance. False when there is no room for these, or there are no
  // results.
  absl::StatusOr<bool> Begin(bool vanishing) {
    samples_.clear();
    for (uint64_t elements = 0; elements < kMinTrialElements;) {
      if ((samples_.size() + 1) * bytes_ > kMaxTrialBytes) return false;
      Sample& sample = samples_.emplace_back();
      const uint64_t seed = samples_.size() << 32;
      sample.slots =
          vanishing ? MakeUpVanishing(call_, seed) : MakeUpSlots(call_, seed);
      NodeInput input;
      input.slots = sample.slots;
      DJINN_RETURN_IF_ERROR(plain_(input, &sample.results));
      if (ElementsOf(sample.results) == 0) return false;
      elements += ElementsOf(sample.results);
    }
    return true;
  }

  absl::StatusOr<bool> AloneIsEqual() {
    return AllSame([&](Sample* sample, std::vector<NodeResult>* results) {
      const ThreadScope threads(/*one_thread=*/true);
      NodeInput input;
      input.slots = sample->slots;
      return plain_(input, results);
    });
  }

  absl::StatusOr<bool> IsEqual(const SumOrder& order) {
    return AllSame([&](Sample* sample, std::vector<NodeResult>* results) {
      if (sample->packed == nullptr && !call_.has_few_rows()) {
        sample->packed =
            Pack(kernel_, call_.weight(), *call_.FindWeight(sample->slots));
      }
      return call_.Run(sample->packed.get(), order, sample->slots, results);
    });
  }

 private:
  absl::StatusOr<bool> AllSame(
      absl::FunctionRef<absl::Status(Sample* sample,
                                     std::vector<NodeResult>* results)>
          carry_out) {
    for (Sample& sample : samples_) {
      std::vector<NodeResult> other;
      DJINN_RETURN_IF_ERROR(carry_out(&sample, &other));
      if (!SameBits(sample.results, other)) return false;
    }
    return true;
  }

  const PackedCall& call_;
  const PackedKernel& kernel_;
  const Plain plain_;
  uint64_t bytes_ = 0;  // of one sample's operands
  std::vector<Sample> samples_;
};

// Products that vanish may take a processor a hundred times as long. Larger
// products all begin alike.
bool MayVanish(const PackedCall& call) {
  constexpr int64_t kMost = 1 << 21;
  return call.row_count() * call.weight().depth * call.weight().width <= kMost;
}

absl::Status Find(const PackedCall& call, const ProductFacts* hint,
                  Trial* trial, ProductFacts* facts) {
  DJINN_ASSIGN_OR_RETURN(const bool begun, trial->Begin(/*vanishing=*/false));
  if (!begun) return absl::OkStatus();
  if (hint == nullptr || hint->alone_is_equal) {
    DJINN_ASSIGN_OR_RETURN(facts->alone_is_equal, trial->AloneIsEqual());
  }
  if (hint != nullptr && !hint->order.has_value()) return absl::OkStatus();
  std::vector<SumOrder> orders =
      OrdersToTry(call.weight().depth, at::get_num_threads());
  if (hint != nullptr) {
    std::stable_partition(
        orders.begin(), orders.end(),
        [&](const SumOrder& order) { return order == *hint->order; });
  }
  for (const SumOrder& order : orders) {
    DJINN_ASSIGN_OR_RETURN(const bool same, trial->IsEqual(order));
    if (!same) continue;
    facts->order = order;
    break;
  }
  return absl::OkStatus();
}

// What was found, if zeros have the same signs, too. How a sum begins shows in
// nothing else.
absl::Status CheckSigns(Trial* trial, ProductFacts* facts) {
  DJINN_ASSIGN_OR_RETURN(const bool begun, trial->Begin(/*vanishing=*/true));
  if (!begun) return absl::OkStatus();
  if (facts->alone_is_equal) {
    DJINN_ASSIGN_OR_RETURN(facts->alone_is_equal, trial->AloneIsEqual());
  }
  if (facts->order.has_value()) {
    DJINN_ASSIGN_OR_RETURN(const bool same, trial->IsEqual(*facts->order));
    if (!same) facts->order.reset();
  }
  return absl::OkStatus();
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

ProductFacts TryProduct(const PackedCall& call, Plain plain,
                        const ProductFacts* hint) {
  ProductFacts facts;
  const PackedKernel* const kernel = BestPackedKernel();
  if (kernel == nullptr) return facts;
  const absl::Status status = CatchTorch("OPERATOR_FAILED", [&] {
    Trial trial(call, *kernel, plain);
    DJINN_RETURN_IF_ERROR(Find(call, hint, &trial, &facts));
    const bool found = facts.alone_is_equal || facts.order.has_value();
    return found && MayVanish(call) ? CheckSigns(&trial, &facts)
                                    : absl::OkStatus();
  });
  return status.ok() ? facts : ProductFacts();
}

}  // namespace djinn::worker
