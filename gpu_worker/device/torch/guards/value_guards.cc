#include "gpu_worker/device/torch/guards/value_guards.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "gpu_worker/device/torch/guards/named_values.h"

namespace djinn::worker {
namespace {

using Integers = std::vector<int64_t>;

bool AreBelow(absl::Span<const int64_t> values, int64_t bound) {
  return std::all_of(values.begin(), values.end(), [bound](int64_t value) {
    return value >= 0 && value < bound;
  });
}

// Returns whether the values ascend, from at least 0 up to at most `last`.
bool Ascend(absl::Span<const int64_t> values, int64_t last) {
  return std::is_sorted(values.begin(), values.end()) &&
         (values.empty() || (values.front() >= 0 && values.back() <= last));
}

// Checks that each index is in a bag. The kernel itself checks the indices, the
// first offset, and whether the last offset is too large.
absl::Status CheckBags(const NamedValues& values) {
  constexpr int64_t kModes = 3;
  const int64_t mode = values.Integer("mode");
  if (mode < 0 || mode >= kModes) return OutOfRange("mode");
  const at::Tensor weight = values.Tensor("weight");
  if (!weight.defined() || weight.dim() != 2) return DoesNotFit("weight");
  const at::Tensor indices = values.Tensor("indices");
  for (const absl::string_view name : {"indices", "offsets"}) {
    const at::Tensor row = values.Tensor(name);
    if (!row.defined() || row.dim() != 1) return DoesNotFit(name);
    // The operator above the kernel makes its operands contiguous.
    const bool of_kernel = absl::StartsWith(values.op(), "aten::_");
    if (of_kernel && !row.is_contiguous()) return DoesNotFit(name);
  }
  if (indices.numel() == 0) return absl::OkStatus();
  const Integers offsets = values.List("offsets").value_or(Integers());
  const size_t ends = values.Boolean("include_last_offset") ? 1 : 0;
  if (offsets.size() <= ends) return DoesNotFit("offsets");
  if (!Ascend(offsets, std::numeric_limits<int64_t>::max())) {
    return OutOfRange("offsets");
  }
  return absl::OkStatus();
}

// Checks that the labels within the lengths are classes. Labels beyond are
// padding.
absl::Status CheckAlignment(const NamedValues& values) {
  const at::Tensor scores = values.Tensor("log_probs");
  const at::Tensor targets = values.Tensor("targets");
  if (!scores.defined() || scores.dim() < 2 || !targets.defined() ||
      targets.dim() < 1) {
    return absl::OkStatus();
  }
  const Integers lengths = values.List("target_lengths").value_or(Integers());
  const int64_t batch = scores.dim() == 3 ? scores.size(1) : 1;
  if (static_cast<int64_t>(lengths.size()) != batch) {
    return DoesNotFit("target_lengths");
  }
  const bool joined = targets.dim() == 1;
  const int64_t row = targets.size(-1);
  if (!joined && (targets.dim() != 2 || targets.size(0) != batch)) {
    return DoesNotFit("targets");
  }
  const Integers labels = *values.List("targets");
  int64_t joined_length = 0;
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t begin = joined ? joined_length : i * row;
    const int64_t room = joined ? row - joined_length : row;
    if (lengths[i] < 0 || lengths[i] > room) {
      return OutOfRange("target_lengths");
    }
    if (!AreBelow(absl::MakeConstSpan(labels).subspan(begin, lengths[i]),
                  scores.size(-1))) {
      return OutOfRange("targets");
    }
    joined_length += lengths[i];
  }
  return absl::OkStatus();
}

// Checks that the batch shrinks from step to step, as sequences end.
absl::Status CheckPackedSequence(const NamedValues& values) {
  const Integers sizes = values.List("batch_sizes").value_or(Integers());
  if (sizes.empty() || sizes.back() < 0 ||
      !std::is_sorted(sizes.rbegin(), sizes.rend())) {
    return OutOfRange("batch_sizes");
  }
  return absl::OkStatus();
}

// Checks that segments are consecutive parts of the data. Segments have the
// data's dimensions up to the one that is reduced.
absl::Status CheckSegments(const NamedValues& values, absl::string_view name,
                           const at::Tensor& data) {
  const at::Tensor segments = values.Tensor(name);
  if (!segments.defined()) return absl::OkStatus();
  const int64_t axis = segments.dim() - 1;
  const int64_t given = values.Integer("axis");
  if (given != axis && given + data.dim() != axis) return DoesNotFit("axis");
  if (axis < 0 || axis >= data.dim() ||
      segments.sizes().slice(0, axis) != data.sizes().slice(0, axis)) {
    return DoesNotFit(name);
  }
  const Integers all = *values.List(name);
  const int64_t row = segments.size(axis);
  const int64_t room = data.size(axis);
  const bool offsets = name == "offsets";
  if (offsets && row == 0) return DoesNotFit(name);
  for (size_t begin = 0; begin < all.size(); begin += row) {
    const auto part = absl::MakeConstSpan(all).subspan(begin, row);
    if (offsets) {
      if (!Ascend(part, room)) return OutOfRange(name);
      continue;
    }
    int64_t left = room;
    for (const int64_t length : part) {
      if (length < 0 || length > left) return OutOfRange(name);
      left -= length;
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSegmentReduce(const NamedValues& values) {
  const at::Tensor data = values.Tensor("data");
  if (!data.defined()) return absl::OkStatus();
  for (const absl::string_view name : {"lengths", "offsets"}) {
    DJINN_RETURN_IF_ERROR(CheckSegments(values, name, data));
  }
  return absl::OkStatus();
}

// LAPACK stops midway on infs and NaNs and leaves results unwritten, or never
// ends.
absl::Status CheckEigenvalues(const NamedValues& values) {
  const at::Tensor self = values.Tensor("self");
  if (self.defined() && !self.isfinite().all().item<bool>()) {
    return absl::InvalidArgumentError(
        "argument self must not contain infs or NaNs");
  }
  return absl::OkStatus();
}

// The kernel draws until the sum of its draws exceeds the count, and no sum
// exceeds a NaN.
absl::Status CheckTrials(const NamedValues& values) {
  const at::Tensor count = values.Tensor("count");
  if (count.defined() && count.isnan().any().item<bool>()) {
    return absl::InvalidArgumentError("argument count must not contain NaNs");
  }
  return absl::OkStatus();
}

// Refuses positions that lie in no image: a NaN stays a NaN when it is clipped
// or reflected, and so does a position that overflows during reflection.
absl::Status CheckSamples(const NamedValues& values) {
  constexpr int64_t kBilinear = 0;
  constexpr int64_t kBorder = 1;
  constexpr int64_t kReflection = 2;
  constexpr double kFar = 1e18;
  const at::Tensor grid = values.Tensor("grid");
  if (!grid.defined() || values.Integer("interpolation_mode") != kBilinear) {
    return absl::OkStatus();
  }
  const int64_t padding = values.Integer("padding_mode");
  if ((padding == kBorder && grid.isnan().any().item<bool>()) ||
      (padding == kReflection && !grid.abs().lt(kFar).all().item<bool>())) {
    return absl::InvalidArgumentError("argument grid has no such places");
  }
  return absl::OkStatus();
}

// The sizes of a matrix of weights with four bits, whose rows consist of blocks
// with one scale each.
struct FourBitSizes {
  int64_t columns, rows, blocks_per_row;
};

absl::StatusOr<FourBitSizes> ReadFourBitSizes(const NamedValues& values) {
  // The kernels count in 32 bits.
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const int64_t columns = values.Integer("in_features");
  const int64_t rows = values.Integer("out_features");
  const int64_t block = values.Integer("block_size");
  if (columns < 1 || columns > kMost || columns % 2 != 0) {
    return DoesNotFit("in_features");
  }
  if (rows < 1 || rows > kMost / columns) return DoesNotFit("out_features");
  if (block < 1 || columns % block != 0) return DoesNotFit("block_size");
  return FourBitSizes{columns, rows, columns / block};
}

// The kernel for ARM reads the operands by the sizes alone.
absl::Status CheckFourBitWeights(const NamedValues& values) {
  DJINN_ASSIGN_OR_RETURN(const FourBitSizes sizes, ReadFourBitSizes(values));
  const struct {
    absl::string_view name;
    int64_t count;
  } operands[] = {{"weights", sizes.rows * sizes.columns / 2},
                  {"scales_zeros", sizes.rows * sizes.blocks_per_row},
                  {"bias", sizes.rows}};
  for (const auto& [name, count] : operands) {
    const at::Tensor operand = values.Tensor(name);
    if (!operand.defined()) continue;  // the operator itself reports it
    if (operand.numel() != count || !operand.is_contiguous()) {
      return DoesNotFit(name);
    }
  }
  return absl::OkStatus();
}

// The kernel reads dense rows and packed weights by the sizes alone.
absl::Status CheckFourBitProduct(const NamedValues& values) {
  DJINN_ASSIGN_OR_RETURN(const FourBitSizes sizes, ReadFourBitSizes(values));
  const at::Tensor input = values.Tensor("inp");
  if (!input.defined() || input.dim() != 2 || input.size(1) != sizes.columns ||
      !input.is_contiguous()) {
    return DoesNotFit("inp");
  }
  const at::Tensor packed = values.Tensor("packed_weights");
  const int64_t count =
      sizes.rows * sizes.columns / 2 + sizes.rows * sizes.blocks_per_row;
  if (!packed.defined() || packed.dim() != 1 || !packed.is_contiguous() ||
      (packed.numel() != count && packed.numel() != count + sizes.rows)) {
    return DoesNotFit("packed_weights");
  }
  return absl::OkStatus();
}

constexpr NamedGuard kGuards[] = {
    {"aten::embedding_bag", CheckBags},
    {"aten::_embedding_bag", CheckBags},
    {"aten::_embedding_bag_forward_only", CheckBags},
    {"aten::ctc_loss", CheckAlignment},
    {"aten::_ctc_loss", CheckAlignment},
    {"aten::_pad_packed_sequence", CheckPackedSequence},
    {"aten::segment_reduce", CheckSegmentReduce},
    {"aten::linalg_eigvals", CheckEigenvalues},
    {"aten::binomial", CheckTrials},
    {"aten::grid_sampler_2d_backward", CheckSamples},
    {"aten::_dyn_quant_pack_4bit_weight", CheckFourBitWeights},
    {"aten::_dyn_quant_matmul_4bit", CheckFourBitProduct},
};

}  // namespace

std::unique_ptr<ArgumentCheck> MakeValueGuard(
    const c10::FunctionSchema& schema) {
  return MakeGuard(kGuards, schema);
}

}  // namespace djinn::worker
