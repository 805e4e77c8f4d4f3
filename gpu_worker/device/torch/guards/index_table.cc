#include "gpu_worker/device/torch/guards/index_table.h"

#include <algorithm>
#include <iterator>

#include "ATen/core/jit_type.h"
#include "absl/strings/strip.h"

namespace djinn::worker {
namespace {

using Bound = IndexBound;
using Lowest = IndexLowest;

constexpr IndexRule kRules[] = {
    {"index", "indices", Bound::kPositions, "self", Lowest::kFromEnd},
    {"_unsafe_index", "indices", Bound::kPositions, "self", Lowest::kFromEnd},
    {"index_put", "indices", Bound::kPositions, "self", Lowest::kFromEnd},
    {"_index_put_impl", "indices", Bound::kPositions, "self", Lowest::kFromEnd},
    {"_unsafe_index_put", "indices", Bound::kPositions, "self",
     Lowest::kFromEnd},
    {"index_select", "index", Bound::kAlong, "self"},
    {"index_select_backward", "index", Bound::kAlongSizes, "self_sizes"},
    {"index_add", "index", Bound::kAlong, "self"},
    {"index_copy", "index", Bound::kAlong, "self"},
    {"index_reduce", "index", Bound::kAlong, "self"},
    {"index_fill", "index", Bound::kAlong, "self", Lowest::kFromEnd},
    {"gather", "index", Bound::kAlong, "self"},
    {"gather_backward", "index", Bound::kAlong, "self"},
    {"take_along_dim", "indices", Bound::kAlong, "self"},
    {"scatter", "index", Bound::kAlong, "self"},
    {"scatter_add", "index", Bound::kAlong, "self"},
    {"scatter_reduce", "index", Bound::kAlong, "self"},
    {"take", "index", Bound::kAll, "self", Lowest::kFromEnd},
    {"put", "index", Bound::kAll, "self", Lowest::kFromEnd},
    {"value_selecting_reduction_backward", "indices", Bound::kAlongSizes,
     "sizes"},
    {"cummaxmin_backward", "indices", Bound::kAlong, "input"},

    {"embedding", "indices", Bound::kRows, "weight"},
    {"embedding_renorm", "indices", Bound::kRows, "self"},
    {"embedding_backward", "indices", Bound::kNumber, "num_weights"},
    {"embedding_dense_backward", "indices", Bound::kNumber, "num_weights"},
    {"embedding_sparse_backward", "indices", Bound::kNumber, "num_weights"},
    {"embedding_bag", "indices", Bound::kRows, "weight"},
    {"embedding_bag", "offsets", Bound::kUpToAll, "indices"},
    {"_embedding_bag", "indices", Bound::kRows, "weight"},
    {"_embedding_bag", "offsets", Bound::kUpToAll, "indices"},
    {"_embedding_bag_forward_only", "indices", Bound::kRows, "weight"},
    {"_embedding_bag_forward_only", "offsets", Bound::kUpToAll, "indices"},
    {"_embedding_bag_backward", "indices", Bound::kNumber, "num_weights"},
    {"_embedding_bag_dense_backward", "indices", Bound::kNumber, "num_weights"},
    {"_embedding_bag_per_sample_weights_backward", "indices", Bound::kRows,
     "weight"},
    {"embedding_bag", "offsets", Bound::kAscending},
    {"_embedding_bag", "offsets", Bound::kAscending},
    {"_embedding_bag_forward_only", "offsets", Bound::kAscending},

    {"nll_loss", "target", Bound::kClasses, "self", Lowest::kZero,
     "ignore_index"},
    {"nll_loss_nd", "target", Bound::kClasses, "self", Lowest::kZero,
     "ignore_index"},
    {"nll_loss_forward", "target", Bound::kClasses, "self", Lowest::kZero,
     "ignore_index"},
    {"nll_loss_backward", "target", Bound::kClasses, "self", Lowest::kZero,
     "ignore_index"},
    {"nll_loss2d", "target", Bound::kClasses, "self", Lowest::kZero,
     "ignore_index"},
    {"nll_loss2d_forward", "target", Bound::kClasses, "self", Lowest::kZero,
     "ignore_index"},
    {"nll_loss2d_backward", "target", Bound::kClasses, "self", Lowest::kZero,
     "ignore_index"},
    {"cross_entropy_loss", "target", Bound::kClasses, "self", Lowest::kZero,
     "ignore_index"},
    {"multi_margin_loss", "target", Bound::kClasses, "self"},
    {"multi_margin_loss_backward", "target", Bound::kClasses, "self"},
    {"multilabel_margin_loss", "target", Bound::kLast, "self", Lowest::kAny},
    {"multilabel_margin_loss_forward", "target", Bound::kLast, "self",
     Lowest::kAny},
    {"multilabel_margin_loss_backward", "target", Bound::kLast, "self",
     Lowest::kAny},
    {"ctc_loss", "targets", Bound::kLast, "log_probs"},
    {"_ctc_loss", "targets", Bound::kLast, "log_probs"},
    {"ctc_loss", "input_lengths", Bound::kCount},
    {"ctc_loss", "target_lengths", Bound::kCount},
    {"_ctc_loss", "input_lengths", Bound::kCount},
    {"_ctc_loss", "target_lengths", Bound::kCount},
    {"one_hot", "self", Bound::kNumber, "num_classes"},

    {"max_unpool2d", "indices", Bound::kSizes, "output_size"},
    {"max_unpool3d", "indices", Bound::kSizes, "output_size"},
    {"max_pool2d_with_indices_backward", "indices", Bound::kPlane, "self"},
    {"max_pool3d_with_indices_backward", "indices", Bound::kSpace, "self"},
    {"adaptive_max_pool2d_backward", "indices", Bound::kPlane, "self"},
    {"adaptive_max_pool3d_backward", "indices", Bound::kSpace, "self"},
    {"fractional_max_pool2d_backward", "indices", Bound::kPlane, "self"},
    {"fractional_max_pool3d_backward", "indices", Bound::kSpace, "self"},

    {"repeat_interleave", "repeats", Bound::kCount},
    {"repeat_interleave", "output_size", Bound::kUnknown},
    {"masked_scatter", "mask", Bound::kMaskCount, "source"},
    {"multinomial", "self", Bound::kWeights},

    {"binary_cross_entropy", "self", Bound::kUnit},
    {"binary_cross_entropy", "target", Bound::kUnit},
    {"bernoulli", "p", Bound::kUnit},
    {"bernoulli", "self", Bound::kUnit, "", Lowest::kZero, "", "p"},
    {"_assert_async", "self", Bound::kNonzero},
    {"_functional_assert_async", "self", Bound::kNonzero},
};

// Returns the name without namespace and the underscore of an in-place form;
// empty for operators of other namespaces.
absl::string_view RuleName(const c10::FunctionSchema& schema) {
  absl::string_view name = schema.name();
  if (!absl::ConsumePrefix(&name, "aten::")) return "";
  absl::ConsumeSuffix(&name, "_");
  return name;
}

std::optional<size_t> Position(const c10::FunctionSchema& schema,
                               absl::string_view name) {
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (schema.arguments()[i].name() == name) return i;
  }
  return std::nullopt;
}

}  // namespace

absl::Span<const IndexRule> IndexRules() { return kRules; }

std::vector<IndexArgument> IndexArgumentsOf(const c10::FunctionSchema& schema) {
  std::vector<IndexArgument> arguments;
  const absl::string_view name = RuleName(schema);
  for (const IndexRule& rule : kRules) {
    if (rule.op != name) continue;
    const std::optional<size_t> argument = Position(schema, rule.argument);
    const std::optional<size_t> of =
        rule.of.empty() ? argument : Position(schema, rule.of);
    if (!argument.has_value() || !of.has_value()) continue;
    // Skips bernoulli(p: float), another form of bernoulli(p: Tensor).
    if (schema.arguments()[*argument].real_type()->kind() ==
        c10::TypeKind::FloatType) {
      continue;
    }
    if (!rule.unless.empty() && Position(schema, rule.unless).has_value()) {
      continue;
    }
    IndexArgument found{rule, *argument, *of};
    if (rule.bound == Bound::kAlong || rule.bound == Bound::kAlongSizes) {
      found.dim = Position(schema, "dim");
    }
    if (!rule.ignored.empty()) found.ignored = Position(schema, rule.ignored);
    arguments.push_back(found);
  }
  return arguments;
}

}  // namespace djinn::worker
