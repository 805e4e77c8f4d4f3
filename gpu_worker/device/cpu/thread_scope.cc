#include "gpu_worker/device/cpu/thread_scope.h"

#include "ATen/Parallel.h"

// What libtorch's OpenMP and MKL, where it has them, count threads by.
extern "C" {
__attribute__((weak)) void omp_set_num_threads(int count);
__attribute__((weak)) int MKL_Set_Num_Threads_Local(int count);
}

namespace djinn::worker {

void CountThreads() {
  thread_local const bool counted = (at::init_num_threads(), true);
  (void)counted;
}

ThreadScope::ThreadScope(bool one_thread) {
  if (!one_thread) return;
  const int count = at::get_num_threads();
  if (count == 1) return;
  count_ = count;
  if (omp_set_num_threads != nullptr) omp_set_num_threads(1);
  if (MKL_Set_Num_Threads_Local != nullptr) mkl_ = MKL_Set_Num_Threads_Local(1);
}

ThreadScope::~ThreadScope() {
  if (count_ == 0) return;
  if (omp_set_num_threads != nullptr) omp_set_num_threads(count_);
  if (MKL_Set_Num_Threads_Local != nullptr) MKL_Set_Num_Threads_Local(mkl_);
}

}  // namespace djinn::worker
