// A run that goes on node by node, when its caller says so: beside others
// (lockstep.h).
//
// Life: made; Begin(); Advance() and one of the ways to carry out a product, in
// turn, until Advance() returns null; Finish(). One that was not begun has
// changed nothing.
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
  // A node that may be carried out as one with another run's.
  struct Product {
    uint32_t node = 0;
    int64_t rows = 0;
    uint32_t weight_slot = 0;
    // What says whether two products are alike.
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
  // Whether there was no room for all that it makes: it takes what comes free
  // meanwhile, and should not go on while others hold theirs.
  virtual bool cramped() const = 0;

  // Carries out what comes before the next product, which it returns; null when
  // no node is left, or the rest is left out. Valid until the next call.
  virtual const Product* Advance() = 0;
  // Carries that product out by itself.
  virtual void RunProduct() = 0;
  // Makes it ready to be joined. False when it failed, or is skipped: the run
  // has gone on. Otherwise SettleProduct() is to follow, which carries it out
  // by itself unless the call was done.
  virtual bool StageProduct(JoinedCall* call) = 0;
  virtual void SettleProduct(const JoinedCall& call) = 0;

  // The metadata is filled when the plan has unknown results.
  virtual void Finish(v1::RunMetadata* metadata) = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_ONGOING_RUN_H_
