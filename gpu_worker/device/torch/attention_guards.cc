#include "gpu_worker/device/torch/attention_guards.h"

#include <cstdint>

#include "ATen/ExpandUtils.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/srg/structure.h"
#include "common/status_macros.h"
#include "gpu_worker/device/torch/guard_checks.h"

namespace djinn::worker {
namespace {

// The kernel writes rows that are dense into a result that is laid out as the
// query is. Where another dimension of the query has steps of 1, as its columns
// do, that result has other rows, and what it holds stays as it was found.
absl::Status CheckQueryLayout(const View& query) {
  if (query->sizes.size() != 4 || query->sizes.back() < 2 ||
      query->strides.back() != 1) {
    return absl::OkStatus();  // not for that kernel
  }
  if (at::infer_dense_strides(query->sizes, query->strides).back() == 1) {
    return absl::OkStatus();
  }
  return Misfit("query", *query, "not have columns that lie in one another");
}

// The kernel walks keys and values by the query's batch and heads and by each
// other's rows, and along rows by single steps.
absl::Status CheckFusedAttention(const NamedArguments& arguments,
                                 bool backward) {
  const View query = arguments.View("query");
  const View key = arguments.View("key");
  if (!query.has_value() || !key.has_value() || query->sizes.size() != 4 ||
      key->sizes.size() != 4) {
    return absl::InvalidArgumentError("the operands are not heads of rows");
  }
  DJINN_RETURN_IF_ERROR(SameSizes(arguments, "key", "value"));
  const auto& heads = query->sizes;
  if (heads[2] == 0 || key->sizes[2] == 0 || heads[0] != key->sizes[0] ||
      heads[3] != key->sizes[3] || key->sizes[1] == 0 ||
      heads[1] % key->sizes[1] != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("argument query is ", srg::DescribeView(*query),
                     ", argument key ", srg::DescribeView(*key)));
  }
  for (const absl::string_view name : {"query", "key", "value", "out"}) {
    const View view = arguments.View(name);
    if (!view.has_value() || view->sizes.empty() || view->sizes.back() < 2 ||
        view->strides.back() == 1) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("rows of argument ", name,
                     " are not dense: ", srg::DescribeView(*view)));
  }
  for (const absl::string_view name : {"key", "value", "grad_out", "out"}) {
    const View view = arguments.View(name);
    if (!view.has_value() || view->data_type == query->data_type) continue;
    return Misfit(
        name, *view,
        absl::StrCat("be of the type of ", Describe("query", *query)));
  }
  if (!backward) return CheckQueryLayout(query);
  DJINN_RETURN_IF_ERROR(SameSizes(arguments, "grad_out", "query"));
  DJINN_RETURN_IF_ERROR(SameSizes(arguments, "out", "query"));
  const View sums = arguments.View("logsumexp");
  const srg::DataType sum_type = query->data_type == srg::DataType::kFloat64
                                     ? srg::DataType::kFloat64
                                     : srg::DataType::kFloat32;
  if (sums.has_value() && sums->data_type != sum_type) {
    return Misfit("logsumexp", *sums, "be of the type that sums are taken in");
  }
  if (sums.has_value() &&
      (sums->sizes.size() != 3 || sums->sizes[0] != heads[0] ||
       sums->sizes[1] != heads[1] || sums->sizes[2] != heads[2])) {
    return absl::InvalidArgumentError(
        absl::StrCat("argument logsumexp is ", srg::DescribeView(*sums),
                     ", argument query ", srg::DescribeView(*query)));
  }
  return absl::OkStatus();
}

}  // namespace

// Grouped heads are counted by dividing by those of the keys.
absl::Status CheckAttention(const NamedArguments& arguments) {
  // Whether it comes to that kernel is known when it runs.
  if (const View query = arguments.View("query")) {
    DJINN_RETURN_IF_ERROR(CheckQueryLayout(query));
  }
  const View key = arguments.View("key");
  const View value = arguments.View("value");
  if (!key.has_value() || !value.has_value() || key->sizes.size() < 2 ||
      value->sizes.size() < 2) {
    return absl::OkStatus();  // the composite complains itself
  }
  if (key->sizes.end()[-2] != value->sizes.end()[-2]) {
    return absl::InvalidArgumentError(
        absl::StrCat("argument key is ", srg::DescribeView(*key),
                     ", argument value ", srg::DescribeView(*value)));
  }
  if (!arguments.Boolean("enable_gqa").value_or(false)) return absl::OkStatus();
  for (const View& view : {key, value}) {
    if (view->sizes.size() > 2 && view->sizes.end()[-3] == 0) {
      return absl::InvalidArgumentError("grouped queries without any key");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFusedAttentionForward(const NamedArguments& arguments) {
  return CheckFusedAttention(arguments, false);
}

absl::Status CheckFusedAttentionBackward(const NamedArguments& arguments) {
  return CheckFusedAttention(arguments, true);
}

// The kernels divide by the number of heads before they look at it.
absl::Status CheckHeads(const NamedArguments& arguments) {
  for (const absl::string_view name : {"num_head", "num_heads"}) {
    const auto heads = arguments.Integer(name);
    if (heads.has_value() && *heads < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("argument ", name, " is ", *heads, ", must be above 0"));
    }
  }
  return absl::OkStatus();
}

// A GPU's kernel loads four of them at once, from the first on.
absl::Status CheckHeadsOnGpu(const NamedArguments& arguments) {
  constexpr int64_t kLoaded = 16;  // bytes
  const View bias = arguments.View("qkv_bias");
  if (!bias.has_value() || bias->sizes.empty()) return absl::OkStatus();
  if ((bias->sizes[0] > 1 && bias->strides[0] != 1) ||
      bias->storage_offset * srg::ElementSize(bias->data_type) % kLoaded != 0) {
    return Misfit("qkv_bias", *bias,
                  "be dense and begin at 16 bytes of its storage");
  }
  return absl::OkStatus();
}

}  // namespace djinn::worker
