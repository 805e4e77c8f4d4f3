// Ways to carry calls out besides PyTorch's own with all threads, each of which
// can be left out. None changes a bit where every bit counts. Packed weights
// and room to append in are left out by giving them none.
#ifndef GPU_WORKER_DEVICE_CPU_CPU_TIERS_H_
#define GPU_WORKER_DEVICE_CPU_CPU_TIERS_H_

namespace djinn::worker {

struct CpuTiers {
  // Where every bit counts: products by kernels of our own, and by one thread
  // in the parts that several would take.
  bool strict_products = true;
  // By one thread where that is sooner; in strict mode after it was seen to
  // give the same.
  bool thread_trials = true;
  // In fast mode: attention as a whole that a program spells out.
  bool whole_attention = true;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_CPU_TIERS_H_
