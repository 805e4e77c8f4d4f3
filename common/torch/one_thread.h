// Restricts PyTorch's kernels to one compute thread while an object exists.
//
// PyTorch's at::set_num_threads() changes every thread of the process. This
// class changes OpenMP's and MKL's count of the calling thread alone, and gives
// that thread its old counts back. It serves calls that are too small to be
// shared among threads, and threads that must not create compute threads of
// their own. A libtorch without OpenMP or MKL is left as it is.
//
// Not thread-safe: a thread creates and destroys its own object.
#ifndef COMMON_TORCH_ONE_THREAD_H_
#define COMMON_TORCH_ONE_THREAD_H_

namespace djinn {

class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int count_;
  int mkl_ = 0;
};

}  // namespace djinn

#endif  // COMMON_TORCH_ONE_THREAD_H_
