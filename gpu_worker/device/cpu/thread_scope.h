// How many threads this thread's kernels use.
#ifndef GPU_WORKER_DEVICE_CPU_THREAD_SCOPE_H_
#define GPU_WORKER_DEVICE_CPU_THREAD_SCOPE_H_

namespace djinn::worker {

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
