#include "gpu_worker/device/torch/guards/value_guards.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/nan_to_num.h"
#include "ATen/ops/ones_like.h"
#include "ATen/ops/scalar_tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn::worker {
namespace {

using Integers = std::vector<int64_t>;

// Finds a call's arguments by name. The operator itself reports arguments that
// are missing or of another type.
class NamedValues {
 public:
  NamedValues(const c10::FunctionSchema& schema, const torch::jit::Stack& stack)
      : schema_(schema), stack_(stack) {}

  // Returns an undefined tensor if there is none.
  at::Tensor Tensor(absl::string_view name) const {
    const c10::IValue* const value = Find(name);
    return value != nullptr && value->isTensor() ? value->toTensor()
                                                 : at::Tensor();
  }

  std::optional<int64_t> Integer(absl::string_view name) const {
    const c10::IValue* const value = Find(name);
    if (value == nullptr || !value->isInt()) return std::nullopt;
    return value->toInt();
  }

  bool Boolean(absl::string_view name) const {
    const c10::IValue* const value = Find(name);
    return value != nullptr && value->isBool() && value->toBool();
  }

  std::optional<double> Number(absl::string_view name) const {
    const c10::IValue* const value = Find(name);
    if (value == nullptr || !value->isDouble()) return std::nullopt;
    return value->toDouble();
  }

  // Returns a number as a tensor without dimensions.
  at::Tensor NumberOrTensor(absl::string_view name) const {
    const c10::IValue* const value = Find(name);
    if (value == nullptr || !value->isScalar()) return Tensor(name);
    return at::scalar_tensor(value->toScalar(), at::kDouble);
  }

  // Returns the integers of a list or of a tensor's elements; nothing if the
  // argument is neither.
  std::optional<Integers> List(absl::string_view name) const {
    const c10::IValue* const value = Find(name);
    if (value == nullptr) return std::nullopt;
    if (value->isIntList()) return value->toIntVector();
    if (!value->isTensor() || !value->toTensor().defined()) return std::nullopt;
    const at::Tensor wide = value->toTensor().to(at::kLong).contiguous();
    const int64_t* const first = wide.const_data_ptr<int64_t>();
    return Integers(first, first + wide.numel());
  }

  absl::string_view op() const { return schema_.name(); }

  // Returns whether the call is of the kernel itself, not of an operator above
  // it that makes operands contiguous for the kernel.
  bool of_kernel() const { return absl::StartsWith(schema_.name(), "aten::_"); }

 private:
  const c10::IValue* Find(absl::string_view name) const {
    for (size_t i = 0; i < schema_.arguments().size(); ++i) {
      if (schema_.arguments()[i].name() == name) return &stack_[i];
    }
    return nullptr;
  }

  const c10::FunctionSchema& schema_;
  const torch::jit::Stack& stack_;
};

absl::Status OutOfRange(absl::string_view argument) {
  return absl::OutOfRangeError(absl::StrCat("argument ", argument));
}

absl::Status DoesNotFit(absl::string_view argument) {
  return absl::InvalidArgumentError(absl::StrCat("argument ", argument));
}

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
  const int64_t mode = values.Integer("mode").value_or(0);
  if (mode < 0 || mode >= kModes) return OutOfRange("mode");
  const at::Tensor weight = values.Tensor("weight");
  if (!weight.defined() || weight.dim() != 2) return DoesNotFit("weight");
  const at::Tensor indices = values.Tensor("indices");
  for (const absl::string_view name : {"indices", "offsets"}) {
    const at::Tensor row = values.Tensor(name);
    if (!row.defined() || row.dim() != 1) return DoesNotFit(name);
    if (values.of_kernel() && !row.is_contiguous()) return DoesNotFit(name);
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
  const int64_t given = values.Integer("axis").value_or(0);
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

// Checks pivots: rows to exchange, counted from 1. Negative pivots come in
// pairs, for blocks of two.
absl::Status CheckPivots(const NamedValues& values) {
  const at::Tensor pivots = values.Tensor("pivots");
  if (!pivots.defined() || pivots.dim() == 0) return absl::OkStatus();
  const int64_t rows = pivots.size(-1);
  const Integers all = *values.List("pivots");
  bool paired = true;
  for (size_t i = 0; i < all.size(); ++i) {
    if (rows > 0 && i % rows == 0 && !paired) break;
    if (all[i] == 0 || all[i] > rows || all[i] < -rows) {
      return OutOfRange("pivots");
    }
    if (all[i] < 0) {
      paired = !paired;
    } else if (!paired) {
      break;
    }
  }
  return paired ? absl::OkStatus() : OutOfRange("pivots");
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

// Most rounds of a loop that a kernel repeats for each element as often as the
// element's value says. A core executes this many rounds in some seconds.
constexpr double kMaxRounds = 1 << 30;

absl::Status CheckRounds(absl::string_view argument, const at::Tensor& rounds) {
  // Adds up doubles, whose sum does not overflow.
  const double sum = rounds.sum(at::kDouble).item<double>();
  if (!(sum > kMaxRounds)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("argument ", argument, " asks for ", sum,
                   " rounds of a loop, at most ", kMaxRounds, " are allowed"));
}

// Returns the terms of the sequence up to the requested order. Orders that are
// negative or NaN cause no loop.
at::Tensor RoundsOfOrders(const at::Tensor& orders) {
  return at::nan_to_num(orders.to(at::kDouble), 0, 1e300, 0).clamp_min(0);
}

// Kernels compute Chebyshev polynomials between their ends with cosines,
// without a loop.
absl::Status CheckOrders(const NamedValues& values) {
  const at::Tensor n = values.NumberOrTensor("n");
  const at::Tensor x = values.NumberOrTensor("x");
  if (!n.defined() || !x.defined()) return absl::OkStatus();
  at::Tensor rounds = RoundsOfOrders(n);
  if (absl::StrContains(values.op(), "chebyshev")) {
    const bool shifted = absl::StrContains(values.op(), "shifted");
    // Truth values have no sign and no difference.
    const at::Tensor number =
        x.scalar_type() == at::kBool ? x.to(at::kByte) : x;
    const at::Tensor place = shifted ? number * 2 - 1 : number;
    rounds = rounds * place.abs().ge(1).to(at::kDouble);
  } else {
    rounds = rounds * at::ones_like(x, at::kDouble);
  }
  return CheckRounds("n", rounds);
}

// Returns how many steps the zeta kernel takes for each element: it raises a
// negative argument above 0 one step at a time. Integers are poles and cause no
// loop.
at::Tensor RoundsOfZeta(const at::Tensor& q) {
  const at::Tensor wide = q.to(at::kDouble);
  return RoundsOfOrders(-wide) * wide.ne(wide.floor()).to(at::kDouble);
}

absl::Status CheckZeta(const NamedValues& values) {
  const at::Tensor x = values.NumberOrTensor("self");
  const at::Tensor q = values.NumberOrTensor("other");
  if (!x.defined() || !q.defined()) return absl::OkStatus();
  return CheckRounds("other", RoundsOfZeta(q) * at::ones_like(x, at::kDouble));
}

absl::Status CheckPolygamma(const NamedValues& values) {
  const at::Tensor self = values.Tensor("self");
  // The kernel computes smaller orders without a loop.
  if (!self.defined() || values.Integer("n").value_or(0) < 2) {
    return absl::OkStatus();
  }
  return CheckRounds("self", RoundsOfZeta(self));
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
  const std::optional<int64_t> padding = values.Integer("padding_mode");
  if ((padding == kBorder && grid.isnan().any().item<bool>()) ||
      (padding == kReflection && !grid.abs().lt(kFar).all().item<bool>())) {
    return absl::InvalidArgumentError("argument grid has no such places");
  }
  return absl::OkStatus();
}

// Checks that every pixel's filter begins in the image. Where a filter begins
// follows from the scale alone.
absl::Status CheckFilters(const NamedValues& values) {
  // of the half pixel by which the filter extends
  constexpr double kSlack = 0.25;
  const std::optional<Integers> output = values.List("output_size");
  const at::Tensor self = values.Tensor("self");
  const Integers input = self.defined()
                             ? self.sizes().vec()
                             : values.List("input_size").value_or(Integers());
  if (values.Boolean("align_corners") || !output.has_value() ||
      output->size() != 2 || input.size() != 4) {
    return absl::OkStatus();
  }
  for (const size_t i : {0, 1}) {
    const absl::string_view name = i == 0 ? "scales_h" : "scales_w";
    const double scale = values.Number(name).value_or(0);
    // the operator computes the scale from the sizes
    if (!(scale > 0)) continue;
    const double last = (static_cast<double>((*output)[i]) - 0.5) / scale;
    if (!(last < static_cast<double>(input[i + 2]) + kSlack)) {
      return DoesNotFit(name);
    }
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
  const int64_t columns = values.Integer("in_features").value_or(0);
  const int64_t rows = values.Integer("out_features").value_or(0);
  const int64_t block = values.Integer("block_size").value_or(0);
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

// Guards return plain texts; the caller adds the operator.
using Guard = absl::Status (*)(const NamedValues& values);

struct NamedGuard {
  absl::string_view op;
  Guard guard;
};

constexpr NamedGuard kGuards[] = {
    {"aten::embedding_bag", CheckBags},
    {"aten::_embedding_bag", CheckBags},
    {"aten::_embedding_bag_forward_only", CheckBags},
    {"aten::ctc_loss", CheckAlignment},
    {"aten::_ctc_loss", CheckAlignment},
    {"aten::_pad_packed_sequence", CheckPackedSequence},
    {"aten::segment_reduce", CheckSegmentReduce},
    {"aten::linalg_ldl_solve", CheckPivots},
    {"aten::linalg_eigvals", CheckEigenvalues},
    {"aten::binomial", CheckTrials},
    {"aten::special_chebyshev_polynomial_t", CheckOrders},
    {"aten::special_chebyshev_polynomial_u", CheckOrders},
    {"aten::special_chebyshev_polynomial_v", CheckOrders},
    {"aten::special_chebyshev_polynomial_w", CheckOrders},
    {"aten::special_shifted_chebyshev_polynomial_t", CheckOrders},
    {"aten::special_shifted_chebyshev_polynomial_u", CheckOrders},
    {"aten::special_shifted_chebyshev_polynomial_v", CheckOrders},
    {"aten::special_shifted_chebyshev_polynomial_w", CheckOrders},
    {"aten::special_laguerre_polynomial_l", CheckOrders},
    {"aten::special_legendre_polynomial_p", CheckOrders},
    {"aten::special_zeta", CheckZeta},
    {"aten::polygamma", CheckPolygamma},
    {"aten::polygamma_", CheckPolygamma},
    {"aten::special_polygamma", CheckPolygamma},
    {"aten::grid_sampler_2d_backward", CheckSamples},
    {"aten::_upsample_bilinear2d_aa", CheckFilters},
    {"aten::_upsample_bilinear2d_aa_backward", CheckFilters},
    {"aten::_upsample_bicubic2d_aa", CheckFilters},
    {"aten::_upsample_bicubic2d_aa_backward", CheckFilters},
    {"aten::_dyn_quant_pack_4bit_weight", CheckFourBitWeights},
    {"aten::_dyn_quant_matmul_4bit", CheckFourBitProduct},
};

class ValueGuard final : public ArgumentCheck {
 public:
  ValueGuard(const c10::FunctionSchema& schema, Guard guard)
      : schema_(schema), guard_(guard) {}

  absl::Status Check(torch::jit::Stack* arguments) override {
    const absl::Status status = guard_(NamedValues(schema_, *arguments));
    if (status.ok()) return status;
    return MakeError(
        absl::StatusCode::kInvalidArgument, kOperatorFailed,
        absl::StrCat(absl::IsOutOfRange(status) ? "index out of range"
                                                : "operands do not fit",
                     " in ", schema_.name(), ", ", status.message()));
  }

 private:
  const c10::FunctionSchema& schema_;
  const Guard guard_;
};

}  // namespace

std::unique_ptr<ArgumentCheck> MakeValueGuard(
    const c10::FunctionSchema& schema) {
  for (const NamedGuard& named : kGuards) {
    if (named.op == schema.name()) {
      return std::make_unique<ValueGuard>(schema, named.guard);
    }
  }
  return nullptr;
}

}  // namespace djinn::worker
