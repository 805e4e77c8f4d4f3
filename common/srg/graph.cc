#include "common/srg/graph.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/error.h"

namespace djinn::srg {
namespace {

constexpr size_t kMaxDimensions = 64;

absl::Status Invalid(const TensorView& view, absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, "INVALID_VIEW",
                   absl::StrCat(what, " in view ", DescribeView(view),
                                " of slot ", view.slot));
}

}  // namespace

int64_t ElementSize(DataType type) {
  switch (type) {
    case DataType::kUint8:
    case DataType::kInt8:
    case DataType::kBool:
      return 1;
    case DataType::kInt16:
    case DataType::kUint16:
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return 2;
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kFloat32:
    case DataType::kComplex32:
      return 4;
    case DataType::kInt64:
    case DataType::kUint64:
    case DataType::kFloat64:
    case DataType::kComplex64:
      return 8;
    case DataType::kComplex128:
      return 16;
    case DataType::kUnspecified:
      break;
  }
  return 0;
}

absl::string_view DataTypeName(DataType type) {
  switch (type) {
    case DataType::kUint8:
      return "uint8";
    case DataType::kInt8:
      return "int8";
    case DataType::kInt16:
      return "int16";
    case DataType::kInt32:
      return "int32";
    case DataType::kInt64:
      return "int64";
    case DataType::kFloat16:
      return "float16";
    case DataType::kFloat32:
      return "float32";
    case DataType::kFloat64:
      return "float64";
    case DataType::kComplex32:
      return "complex32";
    case DataType::kComplex64:
      return "complex64";
    case DataType::kComplex128:
      return "complex128";
    case DataType::kBool:
      return "bool";
    case DataType::kBfloat16:
      return "bfloat16";
    case DataType::kUint16:
      return "uint16";
    case DataType::kUint32:
      return "uint32";
    case DataType::kUint64:
      return "uint64";
    case DataType::kUnspecified:
      break;
  }
  return "unknown";
}

absl::StatusOr<int64_t> ElementCount(const TensorView& view) {
  int64_t count = 1;
  for (const int64_t size : view.sizes) {
    if (size < 0) return Invalid(view, "negative size");
    if (__builtin_mul_overflow(count, size, &count)) {
      return Invalid(view, "too many elements");
    }
  }
  return count;
}

absl::StatusOr<uint64_t> ExtentBytes(const TensorView& view) {
  const int64_t element_size = ElementSize(view.data_type);
  if (element_size == 0) return Invalid(view, "unknown data type");
  if (view.sizes.size() != view.strides.size()) {
    return Invalid(view, "sizes and strides of different length");
  }
  if (view.sizes.size() > kMaxDimensions) {
    return Invalid(view, "too many dimensions");
  }
  if (view.storage_offset < 0) return Invalid(view, "negative offset");
  // An expanded view may have more elements than an int64_t can count.
  const absl::StatusOr<int64_t> count = ElementCount(view);
  if (!count.ok()) return count.status();
  int64_t last = view.storage_offset;
  bool empty = false;
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    if (view.strides[i] < 0) return Invalid(view, "negative stride");
    if (view.sizes[i] == 0) {
      empty = true;
      continue;
    }
    int64_t span;
    if (__builtin_mul_overflow(view.sizes[i] - 1, view.strides[i], &span) ||
        __builtin_add_overflow(last, span, &last)) {
      return Invalid(view, "extent overflows");
    }
  }
  if (empty) return 0;
  int64_t bytes;
  if (__builtin_add_overflow(last, 1, &last) ||
      __builtin_mul_overflow(last, element_size, &bytes)) {
    return Invalid(view, "extent overflows");
  }
  return static_cast<uint64_t>(bytes);
}

bool CoversStorage(const TensorView& view, uint64_t storage_bytes) {
  if (view.storage_offset != 0) return false;
  const absl::StatusOr<int64_t> count = ElementCount(view);
  const absl::StatusOr<uint64_t> extent = ExtentBytes(view);
  if (!count.ok() || !extent.ok() || *extent != storage_bytes) return false;
  // The view is dense if, sorted by stride, each stride is the product of the
  // sizes below it.
  absl::InlinedVector<std::pair<int64_t, int64_t>, 6> dimensions;
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    if (view.sizes[i] != 1) {
      dimensions.emplace_back(view.strides[i], view.sizes[i]);
    }
  }
  std::sort(dimensions.begin(), dimensions.end());
  int64_t expected = 1;
  for (const auto& [stride, size] : dimensions) {
    if (size == 0) return storage_bytes == 0;
    if (stride != expected) return false;
    expected *= size;
  }
  return true;
}

std::string DescribeView(const TensorView& view) {
  return absl::StrCat(DataTypeName(view.data_type), "[",
                      absl::StrJoin(view.sizes, ","), "]");
}

std::string Operator::FullName() const {
  return overload.empty() ? name : absl::StrCat(name, ".", overload);
}

}  // namespace djinn::srg
