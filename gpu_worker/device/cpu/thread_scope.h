// How many threads this thread's kernels use.
#ifndef GPU_WORKER_DEVICE_CPU_THREAD_SCOPE_H_
#define GPU_WORKER_DEVICE_CPU_THREAD_SCOPE_H_

namespace djinn::worker {

// For a thread that is about to call kernels; cheap from the second time on.
// OpenMP counts threads per calling thread, and PyTorch hands its own count
// on only where it parallelises itself: a matrix product in a new thread
// would use every core, whatever the worker was told.
void CountThreads();

// All that the worker has, or one. All again at the end.
class ThreadScope {
 public:
  explicit ThreadScope(bool one_thread);
  ~ThreadScope();
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int count_ = 0;  // to restore; 0: nothing changed
  int mkl_ = 0;    // MKL's own, likewise
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_THREAD_SCOPE_H_
