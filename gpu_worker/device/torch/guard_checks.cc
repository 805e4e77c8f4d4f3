#include "gpu_worker/device/torch/guard_checks.h"

#include "absl/strings/str_cat.h"
#include "gpu_worker/device/torch/size_table.h"

namespace djinn::worker {

std::string Describe(absl::string_view name, const srg::TensorView& view) {
  return absl::StrCat("argument ", name, " ", srg::DescribeView(view));
}

absl::Status Misfit(absl::string_view name, const srg::TensorView& view,
                    absl::string_view due) {
  return absl::InvalidArgumentError(absl::StrCat(
      "argument ", name, " is ", srg::DescribeView(view), ", must ", due));
}

absl::Status SameSizes(const NamedArguments& arguments, absl::string_view a,
                       absl::string_view b) {
  const View x = arguments.View(a);
  const View y = arguments.View(b);
  if (!x.has_value() || !y.has_value()) return absl::OkStatus();
  return CheckSizes(a, *x, y->sizes, Describe(b, *y));
}

}  // namespace djinn::worker
