// What is known of products where every bit counts, by their exact shapes:
// products of the same shape in whatever plans are tried and measured together,
// as the layers of a model are.
#ifndef GPU_WORKER_DEVICE_CPU_PRODUCT_TABLE_H_
#define GPU_WORKER_DEVICE_CPU_PRODUCT_TABLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ATen/core/function_schema.h"
#include "gpu_worker/device/cpu/measured_choice.h"
#include "gpu_worker/device/cpu/product_trial.h"
#include "gpu_worker/device/cpu/weak_table.h"
#include "gpu_worker/device/torch/call_template.h"

namespace djinn::worker {

// Thread-safe. Life: counts runs until a trial is worth it; one run makes it;
// then measures which of the ways that are left is the fastest.
class StrictProduct {
 public:
  // Runs before the trial.
  static constexpr uint32_t kRuns = 16;

  // PyTorch's own with all threads or one, our own kernel with one or all (that
  // with a packed weight only).
  static constexpr size_t kTogether = 0, kAlone = 1, kOwn = 2, kOwnTogether = 3;

  // For a run that begins: whether it is to make the trial and tell Learn().
  bool IsTrialDue() {
    return runs_.load(std::memory_order_relaxed) <= kRuns &&
           runs_.fetch_add(1, std::memory_order_relaxed) == kRuns;
  }
  void Learn(const ProductFacts& facts) {
    facts_ = facts;
    known_.store(true, std::memory_order_release);
  }

  // Null as long as there was no trial.
  const ProductFacts* facts() const {
    return known_.load(std::memory_order_acquire) ? &facts_ : nullptr;
  }

  MeasuredChoice<3> unpacked;
  MeasuredChoice<4> with_packed;

 private:
  std::atomic<uint32_t> runs_{0};
  // Written once, before `known_` is set.
  ProductFacts facts_;
  std::atomic<bool> known_{false};
};

// Thread-safe.
class ProductTable {
 public:
  // What is known of such calls. Forgotten with the last reference.
  std::shared_ptr<StrictProduct> Find(const c10::FunctionSchema& schema,
                                      const CallTemplate& call);

 private:
  WeakTable<StrictProduct> products_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_PRODUCT_TABLE_H_
