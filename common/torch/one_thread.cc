#include "common/torch/one_thread.h"

#include "ATen/Parallel.h"

// The functions that set the counts of the calling thread. If libtorch lacks
// one of them, its weak symbol is null.
extern "C" {
__attribute__((weak)) void omp_set_num_threads(int count);
__attribute__((weak)) int MKL_Set_Num_Threads_Local(int count);
}

namespace djinn {

// PyTorch initialises a thread's count when it is first queried.
OneThread::OneThread() : count_(at::get_num_threads()) {
  if (omp_set_num_threads != nullptr) omp_set_num_threads(1);
  if (MKL_Set_Num_Threads_Local != nullptr) {
    mkl_ = MKL_Set_Num_Threads_Local(1);
  }
}

OneThread::~OneThread() {
  if (omp_set_num_threads != nullptr) omp_set_num_threads(count_);
  if (MKL_Set_Num_Threads_Local != nullptr) MKL_Set_Num_Threads_Local(mkl_);
}

}  // namespace djinn
