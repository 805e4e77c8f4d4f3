#include "gpu_worker/device/cpu/thread_choice.h"

#include "ATen/Parallel.h"

// What libtorch's OpenMP and MKL, where it has them, count threads by.
extern "C" {
__attribute__((weak)) void omp_set_num_threads(int count);
__attribute__((weak)) int MKL_Set_Num_Threads_Local(int count);
}

namespace djinn::worker {
namespace {

// 0: as many as the process.
void Use(int openmp, int mkl) {
  if (omp_set_num_threads != nullptr) omp_set_num_threads(openmp);
  if (MKL_Set_Num_Threads_Local != nullptr) MKL_Set_Num_Threads_Local(mkl);
}

}  // namespace

ThreadScope::ThreadScope(bool one_thread) {
  if (!one_thread) return;
  const int count = at::get_num_threads();
  if (count == 1) return;
  count_ = count;
  Use(1, 1);
}

ThreadScope::~ThreadScope() {
  if (count_ != 0) Use(count_, 0);
}

}  // namespace djinn::worker
