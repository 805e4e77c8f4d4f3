#include "gpu_worker/plan/result_check.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn::worker {
namespace {

std::string Describe(const srg::TensorView& view) {
  std::string text = absl::StrCat(srg::DescribeView(view), " strides [",
                                  absl::StrJoin(view.strides, ","), "]");
  if (view.storage_offset != 0) {
    absl::StrAppend(&text, " offset ", view.storage_offset);
  }
  if (view.conjugate) absl::StrAppend(&text, " conjugated");
  if (view.negative) absl::StrAppend(&text, " negated");
  return text;
}

absl::Status Mismatch(absl::string_view inferred, absl::string_view real) {
  return MakeError(absl::StatusCode::kInternal, "METADATA_MISMATCH",
                   absl::StrCat("inferred ", inferred,
                                ", but the operator returned ", real));
}

// Returns whether the views are equal up to the slot. Strides of dimensions
// that are never stepped over do not count.
bool SameLayout(const srg::TensorView& a, const srg::TensorView& b) {
  if (a.storage_offset != b.storage_offset || a.conjugate != b.conjugate ||
      a.negative != b.negative) {
    return false;
  }
  for (size_t d = 0; d < a.sizes.size(); ++d) {
    if (a.sizes[d] == 0) return true;
  }
  for (size_t d = 0; d < a.sizes.size(); ++d) {
    if (a.sizes[d] > 1 && a.strides[d] != b.strides[d]) return false;
  }
  return true;
}

// Returns whether the view is dense from the start of its storage, so that a
// copy can be written in order.
bool Dense(const srg::TensorView& view) {
  const absl::StatusOr<uint64_t> extent = srg::ExtentBytes(view);
  return extent.ok() && srg::CoversStorage(view, *extent) && !view.conjugate &&
         !view.negative;
}

// Returns the layout to copy to when none was inferred: the same elements,
// contiguous.
srg::TensorView Contiguous(const srg::TensorView& view) {
  srg::TensorView contiguous = view;
  contiguous.storage_offset = 0;
  contiguous.conjugate = contiguous.negative = false;
  int64_t stride = 1;
  for (size_t d = view.sizes.size(); d-- > 0;) {
    contiguous.strides[d] = stride;
    stride *= std::max<int64_t>(view.sizes[d], 1);
  }
  return contiguous;
}

}  // namespace

absl::Status CheckMetadata(const srg::TensorView& inferred,
                           const NodeResult& result) {
  if (result.buffer == nullptr) {
    return Mismatch(Describe(inferred), "an undefined tensor");
  }
  const srg::TensorView& real = result.view;
  DJINN_ASSIGN_OR_RETURN(const uint64_t extent, srg::ExtentBytes(real));
  if (extent > result.buffer->size_bytes()) {
    return Mismatch(Describe(inferred),
                    absl::StrCat(Describe(real), " outside its memory"));
  }
  if (inferred.data_type != real.data_type || inferred.sizes != real.sizes) {
    return Mismatch(Describe(inferred), Describe(real));
  }
  // A copy fixes other differences: kernels choose the memory order of their
  // results by the processor that they run on.
  if (SameLayout(inferred, real) || Dense(inferred)) return absl::OkStatus();
  return Mismatch(Describe(inferred), Describe(real));
}

absl::Status CheckUndefined(const NodeResult& result) {
  if (result.buffer == nullptr) return absl::OkStatus();
  return Mismatch("an undefined tensor", Describe(result.view));
}

absl::Status CheckUnknown(const NodeResult& result) {
  if (result.buffer == nullptr) {
    return Mismatch("some tensor", "an undefined tensor");
  }
  DJINN_ASSIGN_OR_RETURN(const uint64_t extent, srg::ExtentBytes(result.view));
  if (extent > result.buffer->size_bytes()) {
    return Mismatch("some tensor",
                    absl::StrCat(Describe(result.view), " outside its memory"));
  }
  return absl::OkStatus();
}

bool NeedsCopy(const srg::TensorView* inferred, const NodeResult& result) {
  if (result.aliased_slot.has_value()) return true;
  return inferred != nullptr && !SameLayout(*inferred, result.view);
}

uint64_t CopyBytes(const srg::TensorView* inferred, const NodeResult& result) {
  const srg::TensorView layout =
      inferred != nullptr ? *inferred : Contiguous(result.view);
  return srg::ExtentBytes(layout).value_or(0);
}

absl::StatusOr<std::shared_ptr<Buffer>> CopyResult(
    Device* device, const srg::TensorView* inferred,
    std::shared_ptr<Buffer> buffer, srg::TensorView* view) {
  srg::TensorView layout = inferred != nullptr ? *inferred : Contiguous(*view);
  DJINN_ASSIGN_OR_RETURN(const uint64_t bytes, srg::ExtentBytes(layout));
  if (SameLayout(layout, *view)) {
    *view = std::move(layout);
    return device->Clone(*buffer, bytes);
  }
  // The read visits elements in the copy's memory order.
  std::vector<size_t> order(layout.sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const int64_t left = layout.strides[a], right = layout.strides[b];
    return left != right ? left > right : a < b;
  });
  srg::TensorView from = *view;
  for (size_t d = 0; d < order.size(); ++d) {
    from.sizes[d] = view->sizes[order[d]];
    from.strides[d] = view->strides[order[d]];
  }
  DJINN_ASSIGN_OR_RETURN(const SharedBytes elements,
                         device->ReadView(std::move(buffer), from));
  DJINN_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> copy, device->Allocate(bytes));
  DJINN_RETURN_IF_ERROR(device->Write(copy.get(), 0, elements.bytes));
  *view = std::move(layout);
  return copy;
}

}  // namespace djinn::worker
