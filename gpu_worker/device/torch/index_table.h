// Lists the arguments of PyTorch's operators that hold indices, or other values
// that CUDA kernels assert, with their bounds. A failed assertion ends the
// process's use of the GPU, for every tenant. Most CPU kernels check the same
// values themselves; those of a few operators trust them.
//
// Operators whose CUDA kernels trust values that no rule here covers are
// refused (gpu_allow_list.h). Further values that CPU kernels trust are checked
// operator by operator (value_guards.h).
#ifndef GPU_WORKER_DEVICE_TORCH_INDEX_TABLE_H_
#define GPU_WORKER_DEVICE_TORCH_INDEX_TABLE_H_

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
  kAlongSizes,  // the same of a list of sizes
  kRows,        // the first size
  kAll,         // the number of elements
  kUpToAll,     // the same; that number itself is allowed
  kClasses,     // the second size, or the only one
  kLast,        // the last size
  kPlane,       // the product of the last two sizes
  kSpace,       // of the last three
  kSizes,       // the product of a list of sizes
  kNumber,      // an integer; one below 0 bounds nothing
  kCount,       // 2^31, so that no sum of them overflows
  kAscending,   // none is less than the one before it
  kPositions,   // a list of indices and masks: each its own dimension's size
  kUnit,        // no indices: numbers from 0 to 1
  kNonzero,     // no indices: whatever is not 0
  kWeights,     // no indices: rows of numbers from 0, finite, not all of them 0
  kMaskCount,   // a mask of "self": no more are set than `of` has elements
  kUnknown      // no values: a number that the operator is to find by itself
};

// The lower bound of the values.
enum class IndexLowest : uint8_t {
  kZero,
  kFromEnd,  // negative ones count from the end
  kAny       // negative ones end a list
};

struct IndexRule {
  // The name without namespace, overload and the underscore of an in-place
  // form.
  absl::string_view op;
  absl::string_view argument;
  IndexBound bound;
  absl::string_view of = "";
  IndexLowest lowest = IndexLowest::kZero;
  // An integer argument whose value is allowed though it is no index.
  absl::string_view ignored = "";
  // The rule does not hold where the operator has this argument.
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

// Returns the arguments to check in calls of the operator; empty for most.
std::vector<IndexArgument> IndexArgumentsOf(const c10::FunctionSchema& schema);

// The same on a CPU: empty for operators whose CPU kernels check their
// arguments.
std::vector<IndexArgument> IndexArgumentsOnCpu(
    const c10::FunctionSchema& schema);

// The operators whose CPU kernels do not. Named as in IndexRule.
absl::Span<const absl::string_view> OperatorsThatTrustOnCpu();

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_INDEX_TABLE_H_
