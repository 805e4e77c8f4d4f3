#include "gpu_worker/device/torch/guards/work_limit.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "common/base/error.h"

namespace djinn::worker {
namespace {

// The time that a device takes, in nanoseconds.
struct Rates {
  // Per element of an operator that moves, compares or adds elements.
  double simple;
  // Per element of any other operator. The slowest that we measured were powers
  // in norms.
  double usual;
  // Per multiplication that is followed by an addition.
  double product;
};

// In the largest models, a mask of attention that is expanded to heads has
// about 2^34 elements. A simple call on it takes less than a minute.
constexpr Rates kCpu = {3.4, 13.9, 0.0068};
constexpr Rates kGpu = {0.05, 0.2, 0.00005};

// Operators, without a final underscore, that models call on masks, positions
// and tables that they expand.
constexpr absl::string_view kSimple[] = {"_log_softmax", "_safe_softmax",
                                         "_softmax",     "_to_copy",
                                         "add",          "bitwise_and",
                                         "bitwise_not",  "bitwise_or",
                                         "cat",          "clone",
                                         "contiguous",   "copy",
                                         "div",          "eq",
                                         "expand_copy",  "ge",
                                         "gt",           "index",
                                         "le",           "logical_and",
                                         "logical_not",  "logical_or",
                                         "lt",           "masked_fill",
                                         "mul",          "ne",
                                         "neg",          "repeat",
                                         "rsub",         "softmax",
                                         "sub",          "sum",
                                         "to",           "where"};

absl::Status TooLong(absl::string_view op, absl::string_view what,
                     double nanoseconds, absl::Duration longest) {
  return MakeError(
      absl::StatusCode::kInvalidArgument, "WORK_LIMIT",
      absl::StrCat(op, ": an operand repeats elements, and ", what,
                   ", which may keep the worker busy for ",
                   static_cast<int64_t>(nanoseconds / 1e9),
                   " s; longest_call allows ", absl::FormatDuration(longest)));
}

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

bool IsSimple(absl::string_view op) {
  if (FindProduct(op) != nullptr || !absl::ConsumePrefix(&op, "aten::")) {
    return true;
  }
  absl::ConsumeSuffix(&op, "_");
  return std::find(std::begin(kSimple), std::end(kSimple), op) !=
         std::end(kSimple);
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
                       c10::Device device, absl::Duration longest) {
  const Rates& rates = device.is_cpu() ? kCpu : kGpu;
  const double most_nanoseconds = absl::ToDoubleNanoseconds(longest);
  bool repeats = false;
  int64_t most = 0;
  srg::ForEachOperand(node, [&](const srg::TensorView& view) {
    const int64_t elements = srg::ElementCount(view).value_or(0);
    if (!Repeats(view, elements)) return;
    repeats = true;
    most = std::max(most, elements);
  });
  if (!repeats) return absl::OkStatus();
  const double per_element =
      IsSimple(schema.name()) ? rates.simple : rates.usual;
  const double moving = static_cast<double>(most) * per_element;
  if (moving > most_nanoseconds) {
    return TooLong(schema.name(), absl::StrCat("has ", most, " of them"),
                   moving, longest);
  }
  const double products = Multiplications(schema, node);
  const double multiplying = products * rates.product;
  if (multiplying <= most_nanoseconds) return absl::OkStatus();
  return TooLong(schema.name(), absl::StrCat(products, " are to be multiplied"),
                 multiplying, longest);
}

}  // namespace djinn::worker
