// Lists the arguments of PyTorch's operators that hold indices, or other values
// that CUDA kernels assert, with their bounds. A failed assertion ends the
// process's use of the GPU, for every tenant.
//
// Operators whose CUDA kernels trust values that no rule here covers are
// refused (gpu_allow_list.h). Values that CPU kernels trust are checked
// operator by operator (value_guards.h).
#ifndef GPU_WORKER_DEVICE_TORCH_GUARDS_INDEX_TABLE_H_
#define GPU_WORKER_DEVICE_TORCH_GUARDS_INDEX_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ATen/core/function_schema.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace djinn::worker {

// The upper bound of the values, as a property of the argument `of`.
enum class IndexBound : uint8_t {
  kAlong,       // the size along the argument "dim"; without one, all elements
  kAlongSizes,  // the size along "dim" in a list of sizes
  kRows,        // the first size
  kAll,         // the number of elements
  kUpToAll,     // the number of elements, which itself is allowed
  kClasses,     // the second size, or the only one
  kLast,        // the last size
  kPlane,       // the product of the last two sizes
  kSpace,       // the product of the last three sizes
  kSizes,       // the product of a list of sizes
  kNumber,      // an integer; a negative integer bounds nothing
  kCount,       // 2^31, so that no sum of the values overflows
  kAscending,   // none is less than the one before it
  kPositions,   // indices and masks, each bounded by its own dimension
  kUnit,        // no indices: numbers from 0 to 1
  kNonzero,     // no indices: every number except 0
  kWeights,     // no indices: rows of finite numbers >= 0, not all 0
  kMaskCount,   // a mask of "self": sets no more than `of` has elements
  kUnknown      // no values: cleared, so that the operator computes it
};

// The lower bound of the values.
enum class IndexLowest : uint8_t {
  kZero,
  kFromEnd,  // negative values count from the end
  kAny       // negative values end a list
};

struct IndexRule {
  // The name without namespace, overload and the underscore of an in-place
  // form.
  absl::string_view op;
  absl::string_view argument;
  IndexBound bound;
  absl::string_view of = "";
  IndexLowest lowest = IndexLowest::kZero;
  // An integer argument whose value is allowed although it is no index.
  absl::string_view ignored = "";
  // The rule does not apply if the operator has this argument.
  absl::string_view unless = "";
};

absl::Span<const IndexRule> IndexRules();

// A rule with its arguments as positions in a schema.
struct IndexArgument {
  IndexRule rule;
  size_t argument = 0;
  size_t of = 0;
  std::optional<size_t> dim;
  std::optional<size_t> ignored;
};

// Returns the arguments to check in calls of the operator on a GPU; empty for
// most operators.
std::vector<IndexArgument> IndexArgumentsOf(const c10::FunctionSchema& schema);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_GUARDS_INDEX_TABLE_H_
