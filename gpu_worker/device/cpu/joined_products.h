// Products of several runs with one weight, as one product of all their rows.
//
// The rows are put together, multiplied, and each run gets its own part of the
// result in memory of its own: nothing of one run reaches another.
#ifndef GPU_WORKER_DEVICE_CPU_JOINED_PRODUCTS_H_
#define GPU_WORKER_DEVICE_CPU_JOINED_PRODUCTS_H_

#include <cstdint>
#include <memory>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "gpu_worker/device/cpu/choice_table.h"
#include "gpu_worker/device/cpu/cpu_tiers.h"
#include "gpu_worker/device/cpu/learnt_facts.h"
#include "gpu_worker/device/cpu/packed_call.h"
#include "gpu_worker/device/cpu/packed_weights.h"
#include "gpu_worker/device/operator_library.h"

namespace djinn::worker {

// Thread-safe.
class JoinedProducts {
 public:
  // With more rows a product is bound by its arithmetic, and gains nothing.
  static constexpr int64_t kMaxRows = 16;
  // Smaller weights stay in a cache.
  static constexpr int64_t kMinElements = 16384;
  // Of one call's rows and result, which are copied, in memory of no account.
  static constexpr int64_t kMaxCopied = 1 << 20;

  struct Part {
    const PackedCall* call = nullptr;
    JoinedCall* joined = nullptr;
  };

  // `learnt` may be null. `clock` outlives this.
  JoinedProducts(std::shared_ptr<PackedWeights> weights,
                 std::shared_ptr<LearntFacts> learnt, CpuTiers tiers,
                 Clock* clock)
      : weights_(std::move(weights)),
        learnt_(std::move(learnt)),
        tiers_(tiers),
        clock_(*clock) {}

  // Whether the call gains by being joined; and such a one as a node.
  static bool Gains(const PackedCall& call);
  static RowProduct ProductOf(uint32_t node, const PackedCall& call);

  // As OperatorLibrary::ExecuteJoined(). Those whose bias differs from the
  // first one's are left alone.
  void Execute(absl::Span<const Part> parts);

 private:
  // Of joined products that are measured together: depth, width, rows up to the
  // next power of two.
  using Looks = std::tuple<int64_t, int64_t, int>;
  // Looks come from clients; with so many, all are measured anew.
  static constexpr size_t kMaxLooks = 4096;

  std::shared_ptr<Choices> ChoicesFor(const MatrixLayout& layout, int64_t rows);

  const std::shared_ptr<PackedWeights> weights_;
  const std::shared_ptr<LearntFacts> learnt_;
  const CpuTiers tiers_;
  Clock& clock_;
  Mutex mu_;
  absl::flat_hash_map<Looks, std::shared_ptr<Choices>> choices_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_JOINED_PRODUCTS_H_
