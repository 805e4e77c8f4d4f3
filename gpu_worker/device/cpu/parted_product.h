// A matrix product that one thread carries out in the parts into which MKL
// divides it among several: where they sum in another order than one thread
// does over the whole, because a kernel for few rows takes what remains, one
// thread over these parts ends in the bits of all threads.
#ifndef GPU_WORKER_DEVICE_CPU_PARTED_PRODUCT_H_
#define GPU_WORKER_DEVICE_CPU_PARTED_PRODUCT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ATen/core/function_schema.h"
#include "absl/status/status.h"
#include "gpu_worker/device/operator_library.h"
#include "gpu_worker/device/torch/call_template.h"

namespace djinn::worker {

// Immutable.
class PartedProduct {
 public:
  // Nothing unless the call is a product (mm) of two plain float32 matrices
  // that has ways of being divided among so many threads.
  static std::optional<PartedProduct> Match(const c10::FunctionSchema& schema,
                                            const CallTemplate& call,
                                            int threads);

  // How many ways to divide it may be tried.
  size_t ways() const { return ways_.size(); }

  // Appends the product, by the calling thread, divided the `way`th way. An
  // error (nothing was appended) says nothing to a client: PyTorch's kernel
  // says it better.
  absl::Status Run(size_t way, const NodeInput& input,
                   std::vector<NodeResult>* results) const;

 private:
  // Rows, or columns, at a time.
  struct Parting {
    bool by_rows = false;
    int64_t size = 0;
  };

  Operand left_, right_;
  std::vector<Parting> ways_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_PARTED_PRODUCT_H_
