#include "gpu_worker/device/torch/work_limit.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace djinn::worker {
namespace {

struct Limits {
  int64_t elements;
  // Multiplied with another one and added.
  double products;
};

// One core needs 0.3 to 7 ns for an element, the slowest of those that were
// measured a norm. A mask of attention, expanded to heads, has as many as this
// in the largest models.
constexpr Limits kCpu = {int64_t{1} << 34, 0x1p43};
constexpr Limits kGpu = {int64_t{1} << 40, 0x1p50};

// Of several elements of the view at least two are the same one. (Fewer bytes
// than the elements have cannot hold them apart.)
bool Repeats(const srg::TensorView& view, int64_t elements) {
  const uint64_t end = srg::ExtentBytes(view).value_or(0);
  const auto size = static_cast<uint64_t>(srg::ElementSize(view.data_type));
  const auto begin = static_cast<uint64_t>(view.storage_offset) * size;
  return static_cast<double>(elements) * static_cast<double>(size) >
         static_cast<double>(end - std::min(begin, end));
}

// The first operand of a product, whose last dimension is summed over.
std::optional<absl::string_view> LeftFactor(absl::string_view op) {
  constexpr std::pair<absl::string_view, absl::string_view> kProducts[] = {
      {"aten::addbmm", "batch1"}, {"aten::addmm", "mat1"},
      {"aten::addmv", "mat"},     {"aten::baddbmm", "batch1"},
      {"aten::bmm", "self"},      {"aten::linalg_matmul", "self"},
      {"aten::linear", "input"},  {"aten::matmul", "self"},
      {"aten::mm", "self"},       {"aten::mv", "self"},
  };
  for (const auto& [product, left] : kProducts) {
    if (op == product || op == absl::StrCat(product, "_")) return left;
  }
  return std::nullopt;
}

double ProductsOf(const c10::FunctionSchema& schema, const srg::Node& node) {
  const std::optional<absl::string_view> left = LeftFactor(schema.name());
  if (!left.has_value()) return 0;
  double summed = 0;
  for (size_t i = 0; i < node.arguments.size(); ++i) {
    const auto* view = std::get_if<srg::TensorView>(&node.arguments[i]);
    if (view == nullptr || schema.arguments()[i].name() != *left) continue;
    summed = view->sizes.empty() ? 1 : static_cast<double>(view->sizes.back());
    // All batches are summed up, too.
    if (schema.name() == "aten::addbmm") {
      summed *= static_cast<double>(view->sizes.front());
    }
  }
  double results = 0;
  for (const srg::Result& result : node.results) {
    if (const auto* view = std::get_if<srg::TensorView>(&result)) {
      results = static_cast<double>(srg::ElementCount(*view).value_or(0));
    }
  }
  return results * summed;
}

}  // namespace

absl::Status CheckWork(const c10::FunctionSchema& schema, const srg::Node& node,
                       c10::Device device) {
  const Limits& limits = device.is_cpu() ? kCpu : kGpu;
  bool repeats = false;
  int64_t most = 0;
  srg::ForEachOperand(node, [&](const srg::TensorView& view) {
    const int64_t elements = srg::ElementCount(view).value_or(0);
    if (!Repeats(view, elements)) return;
    repeats = true;
    most = std::max(most, elements);
  });
  if (most > limits.elements) {
    return absl::InvalidArgumentError(absl::StrCat(
        schema.name(), ": an operand repeats elements and has ", most,
        " of them, more than a worker may be kept busy with: at most ",
        limits.elements, " are allowed"));
  }
  if (!repeats) return absl::OkStatus();
  const double products = ProductsOf(schema, node);
  if (products <= limits.products) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      schema.name(), ": an operand repeats elements, and ", products,
      " are to be multiplied, more than a worker may be kept busy with: at "
      "most ",
      limits.products, " are allowed"));
}

}  // namespace djinn::worker
