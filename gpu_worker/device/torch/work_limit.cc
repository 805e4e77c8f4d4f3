#include "gpu_worker/device/torch/work_limit.h"

#include <algorithm>
#include <cstdint>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"

namespace djinn::worker {
namespace {

struct Limits {
  int64_t elements;
  // Multiplications that are each followed by an addition.
  double products;
};

// A core needs 0.3 to 7 ns per element; a norm was the slowest operator
// measured. In the largest models, a mask of attention that is expanded to
// heads has about this many elements.
constexpr Limits kCpu = {int64_t{1} << 34, 0x1p43};
constexpr Limits kGpu = {int64_t{1} << 40, 0x1p50};

// Returns whether at least two elements of the view share memory: fewer bytes
// than the elements have cannot keep them apart.
bool Repeats(const srg::TensorView& view, int64_t elements) {
  const uint64_t end = srg::ExtentBytes(view).value_or(0);
  const auto size = static_cast<uint64_t>(srg::ElementSize(view.data_type));
  const auto begin = static_cast<uint64_t>(view.storage_offset) * size;
  return static_cast<double>(elements) * static_cast<double>(size) >
         static_cast<double>(end - std::min(begin, end));
}

// The multiplications of an operator: the number of elements of `outer`, or of
// its results, times the `inner` size of one of its operands.
struct Product {
  absl::string_view op;
  absl::string_view operand;
  enum class Inner {
    kLast,      // the last dimension
    kRows,      // the dimension before the last
    kButFirst,  // all dimensions except the first
  } inner;
  absl::string_view outer = "";
};

constexpr Product kProducts[] = {
    {"aten::_cdist_backward", "x1", Product::Inner::kLast, "grad"},
    {"aten::_cdist_forward", "x1", Product::Inner::kLast},
    {"aten::addbmm", "batch1", Product::Inner::kLast},
    {"aten::addmm", "mat1", Product::Inner::kLast},
    {"aten::addmv", "mat", Product::Inner::kLast},
    {"aten::baddbmm", "batch1", Product::Inner::kLast},
    {"aten::bmm", "self", Product::Inner::kLast},
    {"aten::convolution", "weight", Product::Inner::kButFirst},
    {"aten::convolution_backward", "weight", Product::Inner::kButFirst,
     "grad_output"},
    {"aten::linalg_matmul", "self", Product::Inner::kLast},
    {"aten::linear", "input", Product::Inner::kLast},
    {"aten::matmul", "self", Product::Inner::kLast},
    {"aten::mm", "self", Product::Inner::kLast},
    {"aten::mv", "self", Product::Inner::kLast},
};
// The names of all forms of attention contain this.
constexpr absl::string_view kAttention = "scaled_dot_product";
constexpr Product kAttentionProduct = {"", "key", Product::Inner::kRows,
                                       "query"};

const Product* FindProduct(absl::string_view op) {
  const absl::string_view functional = absl::StripSuffix(op, "_");
  for (const Product& product : kProducts) {
    if (functional == product.op) return &product;
  }
  return absl::StrContains(op, kAttention) ? &kAttentionProduct : nullptr;
}

const srg::TensorView* FindOperand(const c10::FunctionSchema& schema,
                                   const srg::Node& node,
                                   absl::string_view name) {
  for (size_t i = 0; i < node.arguments.size(); ++i) {
    if (schema.arguments()[i].name() != name) continue;
    return std::get_if<srg::TensorView>(&node.arguments[i]);
  }
  return nullptr;
}

double Inner(const srg::TensorView& view, Product::Inner inner) {
  const absl::Span<const int64_t> sizes = view.sizes;
  const auto at = [&](size_t from_end) {
    return sizes.size() < from_end
               ? 1.0
               : static_cast<double>(sizes[sizes.size() - from_end]);
  };
  switch (inner) {
    case Product::Inner::kLast:
      return at(1);
    case Product::Inner::kRows:
      return at(2);
    case Product::Inner::kButFirst:
      break;
  }
  double all = 1;
  for (size_t i = 1; i < sizes.size(); ++i)
    all *= static_cast<double>(sizes[i]);
  return all;
}

}  // namespace

double Multiplications(const c10::FunctionSchema& schema,
                       const srg::Node& node) {
  const Product* const product = FindProduct(schema.name());
  if (product == nullptr) return 0;
  const srg::TensorView* const operand =
      FindOperand(schema, node, product->operand);
  if (operand == nullptr) return 0;
  double inner = Inner(*operand, product->inner);
  // The operator also sums over all batches.
  if (product->op == "aten::addbmm" && !operand->sizes.empty()) {
    inner *= static_cast<double>(operand->sizes.front());
  }
  double outer = 0;
  if (product->outer.empty()) {
    for (const srg::Result& result : node.results) {
      if (const auto* view = std::get_if<srg::TensorView>(&result)) {
        outer = static_cast<double>(srg::ElementCount(*view).value_or(0));
      }
    }
  } else if (const srg::TensorView* const each =
                 FindOperand(schema, node, product->outer)) {
    outer = static_cast<double>(srg::ElementCount(*each).value_or(0));
  }
  return outer * inner;
}

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
  const double products = Multiplications(schema, node);
  if (products <= limits.products) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      schema.name(), ": an operand repeats elements, and ", products,
      " are to be multiplied, more than a worker may be kept busy with: at "
      "most ",
      limits.products, " are allowed"));
}

}  // namespace djinn::worker
