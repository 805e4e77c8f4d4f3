// How a matrix product may be carried out where every bit counts.
//
// A float32 sum depends on the order of its terms. MKL's follows from the
// product's shape and the number of threads, not from values: it cuts the depth
// into blocks of what fits the caches, and into parts where the threads have
// too few rows and columns to share out. So a product of such a shape is
// carried out once, or, if it has few elements, some times, on operands made up
// for it: by PyTorch with all threads and with one, and by our own kernels in
// the orders that MKL is known to use.
#ifndef GPU_WORKER_DEVICE_CPU_PRODUCT_TRIAL_H_
#define GPU_WORKER_DEVICE_CPU_PRODUCT_TRIAL_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "gpu_worker/device/cpu/packed_call.h"
#include "gpu_worker/device/cpu/packed_kernel.h"
#include "gpu_worker/device/operator_library.h"

namespace djinn::worker {

struct ProductFacts {
  // One thread gives the bits of all.
  bool alone_is_equal = false;
  // In which our own kernels do; nothing if in none that was tried.
  std::optional<SumOrder> order;
};

// More operands, their storages' fronts included, are not made up: such
// products stay PyTorch's.
inline constexpr uint64_t kMaxTrialBytes = uint64_t{128} << 20;
// Elements of results that are compared. Two orders of a long sum give the same
// bits once in two or three times.
inline constexpr uint64_t kMinTrialElements = 64;

// `call` says what the product is, `plain` has PyTorch carry it out. Takes a
// few times as long as the product. Nothing is equal when something fails.
// `hint`, which may be null, is what an earlier trial is said to have found: of
// that only what was equal is tried, and compared as ever; where it is not, all
// the rest.
ProductFacts TryProduct(
    const PackedCall& call,
    absl::FunctionRef<absl::Status(const NodeInput& input,
                                   std::vector<NodeResult>* results)>
        plain,
    const ProductFacts* hint = nullptr);

// Orders that are tried for a product of this depth with so many threads, the
// likeliest first.
std::vector<SumOrder> OrdersToTry(int64_t depth, int threads);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_PRODUCT_TRIAL_H_
