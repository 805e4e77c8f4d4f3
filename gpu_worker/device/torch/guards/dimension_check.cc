#include "gpu_worker/device/torch/guards/dimension_check.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "gpu_worker/device/torch/guards/named_arguments.h"
#include "gpu_worker/device/torch/guards/size_table.h"

namespace djinn::worker {
namespace {

constexpr absl::string_view kNames[] = {
    "axis",      "axis0",   "axis1",     "dim",  "dim0",
    "dim1",      "dim2",    "dimension", "dims", "dims_other",
    "dims_self", "end_dim", "start_dim"};

bool NamesDimensions(const c10::FunctionSchema& schema,
                     const c10::Argument& argument) {
  // tile() repeats a tensor `dims` times; a Sobol engine's `dimension` is its
  // number of columns.
  return std::find(std::begin(kNames), std::end(kNames), argument.name()) !=
             std::end(kNames) &&
         schema.name() != "aten::tile" &&
         !absl::StartsWith(schema.name(), "aten::_sobol_");
}

// Returns the greatest number of dimensions of an operand, and of a tensor
// whose sizes are an argument.
int64_t MostDimensions(const c10::FunctionSchema& schema,
                       const CallTemplate& call) {
  size_t most = 1;
  const auto count = [&most](const TensorSource& source) {
    if (const auto* operand = std::get_if<Operand>(&source)) {
      most = std::max(most, operand->view.sizes.size());
    }
  };
  for (const Place& place : call.places) {
    if (const auto* source = std::get_if<TensorSource>(&place.source)) {
      count(*source);
    } else if (const auto* list =
                   std::get_if<TensorListSource>(&place.source)) {
      for (const TensorSource& entry : list->entries) count(entry);
    }
  }
  for (size_t i = 0; i < call.values.size(); ++i) {
    if (call.values[i].isIntList() &&
        absl::StrContains(schema.arguments()[i].name(), "size")) {
      most = std::max(most, call.values[i].toIntList().size());
    }
  }
  return static_cast<int64_t>(most);
}

absl::Status OutOfRange(int64_t dimension, int64_t lowest, int64_t highest) {
  return absl::InvalidArgumentError(
      absl::StrCat("Dimension out of range (expected to be in range of [",
                   lowest, ", ", highest, "], but got ", dimension, ")"));
}

// The kernels index sizes and strides by the dimensions, and read half a
// spectrum of `last_dim_size` values.
absl::Status CheckTransform(absl::string_view op,
                            const NamedArguments& arguments) {
  const std::optional<srg::TensorView> self = arguments.View("self");
  std::optional<std::vector<int64_t>> dims = arguments.Integers("dim");
  if (!self.has_value() || !dims.has_value()) return absl::OkStatus();
  const auto rank = static_cast<int64_t>(self->sizes.size());
  for (const int64_t dimension : *dims) {
    if (dimension < 0 || dimension >= rank) {
      return absl::InvalidArgumentError(absl::StrCat(
          op, ": dimension ", dimension, " of ", Describe("self", *self),
          " is transformed, must be from 0 to ", rank - 1));
    }
  }
  const std::optional<int64_t> last = arguments.Integer("last_dim_size");
  if (last.has_value() && !dims->empty()) {
    const int64_t size = self->sizes[static_cast<size_t>(dims->back())];
    if (*last < 1 || *last / 2 + 1 > size) {
      return absl::InvalidArgumentError(
          absl::StrCat(op, ": argument last_dim_size is ", *last, ", ",
                       Describe("self", *self), " has ", size,
                       " frequencies in dimension ", dims->back()));
    }
  }
  std::sort(dims->begin(), dims->end());
  if (std::adjacent_find(dims->begin(), dims->end()) != dims->end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": a dimension is transformed twice"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckDimensions(const c10::FunctionSchema& schema,
                             const CallTemplate& call) {
  if (!absl::StartsWith(schema.name(), "aten::")) return absl::OkStatus();
  if (absl::StartsWith(schema.name(), "aten::_fft_")) {
    return CheckTransform(schema.name(), NamedArguments(schema, call));
  }
  std::optional<int64_t> most;
  for (size_t i = 0; i < call.values.size(); ++i) {
    const c10::IValue& value = call.values[i];
    if (!value.isInt() && !value.isIntList()) continue;
    if (!NamesDimensions(schema, schema.arguments()[i])) continue;
    if (!most.has_value()) most = MostDimensions(schema, call);
    const auto check = [&most](int64_t dimension) {
      if (dimension >= -*most - 1 && dimension <= *most) {
        return absl::OkStatus();
      }
      return OutOfRange(dimension, -*most, *most - 1);
    };
    if (value.isInt()) {
      DJINN_RETURN_IF_ERROR(check(value.toInt()));
    } else {
      for (const int64_t dimension : value.toIntVector()) {
        DJINN_RETURN_IF_ERROR(check(dimension));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace djinn::worker
