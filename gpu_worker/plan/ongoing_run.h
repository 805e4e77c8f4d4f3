// Advances a run node by node, side by side with others (lockstep.h).
//
// Life: Begin(); then, in turn, Advance() and one of the two ways to execute a
// product, until Advance() returns null; then Finish(). A run that was not
// begun has changed nothing.
//
// Not thread-safe.
#ifndef GPU_WORKER_PLAN_ONGOING_RUN_H_
#define GPU_WORKER_PLAN_ONGOING_RUN_H_

#include <cstdint>
#include <vector>

#include "gpu_worker/device/device.h"
#include "gpu_worker/device/operator_library.h"

namespace djinn::v1 {
class RunMetadata;
}  // namespace djinn::v1

namespace djinn::worker {

class OngoingRun {
 public:
  // A node that may be joined with another run's node.
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

  // Returns the run's products, as ProductsOf() (run_executor.h).
  virtual const std::vector<Product>& products() const = 0;

  virtual void Begin() = 0;
  // Returns whether there was no room to reserve all of the run's values at
  // once. Such a run takes memory as it becomes free and should not advance
  // while other runs hold theirs.
  virtual bool cramped() const = 0;

  // Executes the nodes before the next product and returns that product.
  // Returns null when no node is left, or the rest is skipped. The result is
  // valid until the next call.
  virtual const Product* Advance() = 0;
  // Executes the product that Advance() returned by itself.
  virtual void RunProduct() = 0;
  // Prepares the product to be joined. Returns false if the product failed or
  // is skipped: the run has then advanced past it. Otherwise SettleProduct()
  // must follow. If the joined call was not done, SettleProduct() executes this
  // product alone.
  virtual bool StageProduct(JoinedCall* call) = 0;
  virtual void SettleProduct(const JoinedCall& call) = 0;

  // Ends the run. Fills the metadata if the plan has unknown results.
  virtual void Finish(v1::RunMetadata* metadata) = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_ONGOING_RUN_H_
