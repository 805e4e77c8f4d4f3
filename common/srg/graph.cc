#include "common/srg/graph.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/error.h"

namespace djinn::srg {
namespace {

constexpr size_t kMaxDimensions = 64;

struct ElementType {
  absl::string_view name;
  int64_t size = 0;
};

// The element types by their number. Those without a name are PyTorch's
// quantised ones.
constexpr ElementType kElementTypes[] = {
    {},  // kUnspecified
    {"uint8", 1},
    {"int8", 1},
    {"int16", 2},
    {"int32", 4},
    {"int64", 8},
    {"float16", 2},
    {"float32", 4},
    {"float64", 8},
    {"complex32", 4},
    {"complex64", 8},
    {"complex128", 16},
    {"bool", 1},
    {},
    {},
    {},
    {"bfloat16", 2},
    {},
    {},
    {"bits1x8", 1},
    {"bits2x4", 1},
    {"bits4x2", 1},
    {"bits8", 1},
    {"bits16", 2},
    {"float8_e5m2", 1},
    {"float8_e4m3fn", 1},
    {"float8_e5m2fnuz", 1},
    {"float8_e4m3fnuz", 1},
    {"uint16", 2},
    {"uint32", 4},
    {"uint64", 8},
    {"uint1", 1},
    {"uint2", 1},
    {"uint3", 1},
    {"uint4", 1},
    {"uint5", 1},
    {"uint6", 1},
    {"uint7", 1},
    {"int1", 1},
    {"int2", 1},
    {"int3", 1},
    {"int4", 1},
    {"int5", 1},
    {"int6", 1},
    {"int7", 1},
    {"float8_e8m0fnu", 1},
    {"float4_e2m1fn_x2", 1},
};

ElementType Find(DataType type) {
  const auto number = static_cast<size_t>(type);
  return number < std::size(kElementTypes) ? kElementTypes[number]
                                           : ElementType{};
}

absl::Status Invalid(const TensorView& view, absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, "INVALID_VIEW",
                   absl::StrCat(what, " in view ", DescribeView(view),
                                " of slot ", view.slot));
}

}  // namespace

int64_t ElementSize(DataType type) { return Find(type).size; }

absl::string_view DataTypeName(DataType type) {
  const absl::string_view name = Find(type).name;
  return name.empty() ? "unknown" : name;
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
