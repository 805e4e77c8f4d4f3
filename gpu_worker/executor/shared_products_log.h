// Records which of the runs of a batch have shared products, and how many.
//
// Not thread-safe.
#ifndef GPU_WORKER_EXECUTOR_SHARED_PRODUCTS_LOG_H_
#define GPU_WORKER_EXECUTOR_SHARED_PRODUCTS_LOG_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace djinn::worker {

class SharedProductsLog {
 public:
  explicit SharedProductsLog(size_t runs)
      : runs_(runs), counts_(runs), with_(runs * runs) {}

  // Records one product that these runs shared.
  void Add(absl::Span<const size_t> joined) {
    for (const size_t run : joined) {
      ++counts_[run];
      for (const size_t other : joined) with_[run * runs_ + other] = true;
    }
  }

  // Returns how many of the run's products were shared.
  uint64_t count(size_t run) const { return counts_[run]; }
  // Returns the other runs that shared a product with it, in order.
  std::vector<size_t> With(size_t run) const {
    std::vector<size_t> others;
    for (size_t other = 0; other < runs_; ++other) {
      if (other != run && with_[run * runs_ + other]) others.push_back(other);
    }
    return others;
  }

 private:
  const size_t runs_;
  std::vector<uint64_t> counts_;
  // Indexed by run and other run.
  std::vector<bool> with_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_EXECUTOR_SHARED_PRODUCTS_LOG_H_
