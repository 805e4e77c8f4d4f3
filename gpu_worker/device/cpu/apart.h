// Keeps the threads of a parallel loop on different processors.
//
// OpenMP's threads wait for each other at the end of every loop, and spin
// first. Where Linux woke one on the processor of another, as it may while
// a third (a client that is about to sleep) has the other processor, the second
// spins in the first one's way: until the scheduler's balancing separates them,
// four milliseconds later, every product takes as long as the spinning.
#ifndef GPU_WORKER_DEVICE_CPU_APART_H_
#define GPU_WORKER_DEVICE_CPU_APART_H_

#include <atomic>

namespace djinn::worker {

// One loop. Without effect where it has more threads than there are processors.
class Apart {
 public:
  // By each of `threads` that begins its share; 0 is the one that began the
  // loop.
  void Begin(int thread, int threads);

 private:
  std::atomic<int> first_{-1};  // the processor of thread 0
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_APART_H_
