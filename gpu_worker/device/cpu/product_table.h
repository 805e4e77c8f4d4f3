// What is known of products where every bit counts, by their exact shapes:
// products of the same shape in whatever plans are tried and measured together,
// as the layers of a model are.
#ifndef GPU_WORKER_DEVICE_CPU_PRODUCT_TABLE_H_
#define GPU_WORKER_DEVICE_CPU_PRODUCT_TABLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "ATen/core/function_schema.h"
#include "absl/strings/string_view.h"
#include "gpu_worker/device/cpu/choice_table.h"
#include "gpu_worker/device/cpu/learnt_facts.h"
#include "gpu_worker/device/cpu/measured_choice.h"
#include "gpu_worker/device/cpu/product_trial.h"
#include "gpu_worker/device/cpu/weak_table.h"
#include "gpu_worker/device/torch/call_template.h"

namespace djinn::worker {

// Thread-safe. Life: counts runs until a trial is worth it; one of those that
// follow makes it; then measures which of the ways that are left is the
// fastest.
class StrictProduct {
 public:
  // Runs before the trial.
  static constexpr uint32_t kRuns = 16;

  // PyTorch's own with all threads or one, our own kernel with one or all (that
  // with a packed weight only).
  static constexpr size_t kTogether = 0, kAlone = 1, kOwn = 2, kOwnTogether = 3;

  // The same, but by all threads.
  static constexpr size_t WithAllThreads(size_t way) {
    return way == kAlone ? kTogether : way == kOwn ? kOwnTogether : way;
  }

  StrictProduct() = default;
  // Of products of this shape. Begins with what was learnt of them, and notes
  // it there.
  StrictProduct(absl::string_view shape, std::shared_ptr<LearntFacts> learnt);

  // What an earlier process found, for the trial, which then is soon; null if
  // nothing is known.
  const ProductFacts* hint() const {
    return hint_.has_value() ? &*hint_ : nullptr;
  }

  // For a run that begins: whether a trial is worth it, and none was begun. It
  // may be left to a later run.
  bool IsTrialDue() {
    return !begun_.load(std::memory_order_relaxed) &&
           runs_.fetch_add(1, std::memory_order_relaxed) >= kRuns;
  }
  // Whether the caller is the one to make the trial and tell Learn().
  bool BeginTrial() { return !begun_.exchange(true); }
  void Learn(const ProductFacts& facts);
  // A way was measured: it may be known by now which is the fastest.
  void NoteMeasured();

  // Null as long as there was no trial.
  const ProductFacts* facts() const {
    return known_.load(std::memory_order_acquire) ? &facts_ : nullptr;
  }

  MeasuredChoice<3> unpacked;
  MeasuredChoice<4> with_packed;

 private:
  void Note();

  LearntFacts::Name name_;
  std::shared_ptr<LearntFacts> learnt_;
  std::optional<ProductFacts> hint_;
  FastestWays fastest_;
  std::atomic<uint32_t> runs_{0};
  std::atomic<bool> begun_{false};
  // Written once, before `known_` is set.
  ProductFacts facts_;
  std::atomic<bool> known_{false};
};

// Thread-safe.
class ProductTable {
 public:
  // As ChoiceTable.
  explicit ProductTable(std::shared_ptr<LearntFacts> learnt = nullptr)
      : learnt_(std::move(learnt)) {}

  // What is known of such calls. Forgotten with the last reference.
  std::shared_ptr<StrictProduct> Find(const c10::FunctionSchema& schema,
                                      const CallTemplate& call);

 private:
  const std::shared_ptr<LearntFacts> learnt_;
  WeakTable<StrictProduct> products_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_PRODUCT_TABLE_H_
