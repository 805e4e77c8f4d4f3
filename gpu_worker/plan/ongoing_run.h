// A run that its caller advances node by node, beside others (lockstep.h).
//
// Life: Begin(); Advance() and one of the ways to execute a product, in turn,
// until Advance() returns null; Finish(). A run that was not begun has changed
// nothing.
//
// Not thread-safe.
#ifndef GPU_WORKER_PLAN_ONGOING_RUN_H_
#define GPU_WORKER_PLAN_ONGOING_RUN_H_

#include <cstdint>
#include <vector>

#include "djinn/v1/execution.pb.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/device/operator_library.h"

namespace djinn::worker {

class OngoingRun {
 public:
  // A node that may be executed as one with another run's.
  struct Product {
    uint32_t node = 0;
    int64_t rows = 0;
    uint32_t weight_slot = 0;
    // Two products with equal weight and kind can be joined.
    const Buffer* weight = nullptr;
    uint64_t kind = 0;

    bool Joins(const Product& other) const {
      return weight == other.weight && kind == other.kind;
    }
  };

  virtual ~OngoingRun() = default;

  // As ProductsOf() (executor.h).
  virtual const std::vector<Product>& products() const = 0;

  virtual void Begin() = 0;
  // Whether there was no room for all of the run's values: it takes memory that
  // becomes free, and should not advance while other runs hold theirs.
  virtual bool cramped() const = 0;

  // Executes the nodes before the next product, and returns that product; null
  // when no node is left, or the rest is left out. Valid until the next call.
  virtual const Product* Advance() = 0;
  // Executes that product by itself.
  virtual void RunProduct() = 0;
  // Makes the product ready to be joined. Returns false when it failed or is
  // skipped: the run has advanced. Otherwise SettleProduct() must follow, which
  // executes the product by itself unless the call was done.
  virtual bool StageProduct(JoinedCall* call) = 0;
  virtual void SettleProduct(const JoinedCall& call) = 0;

  // The metadata is filled when the plan has unknown results.
  virtual void Finish(v1::RunMetadata* metadata) = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_ONGOING_RUN_H_
