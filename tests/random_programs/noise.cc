#include "tests/random_programs/noise.h"

#include <ATen/Dispatch.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/container/flat_hash_set.h"

namespace djinn::random_programs {
namespace {

// Returns whether the step adds up or multiplies up its operands' elements.
bool AddsUp(const Step& step) {
  if (IsBackward(step)) return true;
  if (step.kind != Step::Kind::kCall) return false;
  static const auto* const kNames = new absl::flat_hash_set<std::string>{
      "adaptive_avg_pool2d",
      "addmm",
      "avg_pool2d",
      "baddbmm",
      "binary_cross_entropy_with_logits",
      "bmm",
      "conv2d",
      "cross_entropy_loss",
      "cumprod",
      "cumsum",
      "dot",
      "einsum",
      "group_norm",
      "huber_loss",
      "inner",
      "l1_loss",
      "layer_norm",
      "linalg_cholesky",
      "linalg_inv",
      "linalg_vector_norm",
      "linear",
      "log_softmax",
      "logcumsumexp",
      "logsumexp",
      "matmul",
      "mean",
      "mm",
      "mse_loss",
      "mv",
      "nansum",
      "norm",
      "outer",
      "prod",
      "scaled_dot_product_attention",
      "smooth_l1_loss",
      "softmax",
      "std",
      "sum",
      "trace",
      "var",
      "var_mean",
  };
  std::string name = step.op->schema().name().substr(6);
  if (name.ends_with('_')) name.pop_back();
  return kNames->contains(name);
}

}  // namespace

void Noise::Disturb(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, tensor.scalar_type(), "Disturb", [&] {
        auto* const elements = static_cast<scalar_t*>(storage.mutable_data());
        const double precision =
            static_cast<double>(std::numeric_limits<scalar_t>::epsilon());
        for (size_t i = 0; i < storage.nbytes() / sizeof(scalar_t); ++i) {
          const double way =
              static_cast<double>(random_() >> 11) * 0x1p-52 - 1.0;
          elements[i] =
              static_cast<scalar_t>(static_cast<double>(elements[i]) *
                                    (1.0 + way * roundings_ * precision));
        }
      });
}

Noise::Scope::Scope(Noise* noise, const Step& step, const Machine& machine) {
  if (noise == nullptr || !AddsUp(step)) return;
  std::vector<at::Tensor> operands = machine.Operands(step);
  if (IsBackward(step)) {
    // Formulas of a backward pass use the operands of earlier calls.
    for (int slot = 0; slot < machine.size(); ++slot) {
      operands.push_back(machine.slot(slot));
    }
  }
  absl::flat_hash_set<const c10::StorageImpl*> seen;
  for (const at::Tensor& tensor : operands) {
    if (!tensor.defined() || !tensor.is_floating_point()) continue;
    const c10::Storage& storage = tensor.storage();
    if (storage.nbytes() == 0 || storage.data() == nullptr ||
        !seen.insert(storage.unsafeGetStorageImpl()).second) {
      continue;
    }
    const auto* const bytes = static_cast<const char*>(storage.data());
    Kept kept{storage, static_cast<size_t>(tensor.element_size()),
              std::string(bytes, storage.nbytes()), ""};
    noise->Disturb(tensor);
    kept.disturbed.assign(bytes, storage.nbytes());
    kept_.push_back(std::move(kept));
  }
}

Noise::Scope::~Scope() {
  for (const Kept& kept : kept_) {
    if (kept.storage.data() == nullptr) continue;
    auto* const bytes = static_cast<char*>(kept.storage.mutable_data());
    const size_t size = std::min(kept.storage.nbytes(), kept.before.size());
    for (size_t at = 0; at + kept.element_size <= size;
         at += kept.element_size) {
      if (std::memcmp(bytes + at, kept.disturbed.data() + at,
                      kept.element_size) == 0) {
        std::memcpy(bytes + at, kept.before.data() + at, kept.element_size);
      }
    }
  }
}

}  // namespace djinn::random_programs
