#include "client_lib/capture/outputs/run_on_cpu.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>

// What libtorch's OpenMP and MKL, where it has them, count threads by.
extern "C" {
__attribute__((weak)) void omp_set_num_threads(int count);
__attribute__((weak)) int MKL_Set_Num_Threads_Local(int count);
}

namespace djinn::capture {
namespace {

class SilentWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

// One thread for the kernels of this thread. Otherwise a trial in a thread of
// autograd's would give it compute threads of its own, and OpenMP slows down
// all of a process that has more of them than cores.
class OneThread {
 public:
  // PyTorch gives every thread its count at the first question.
  OneThread() : count_(at::get_num_threads()) {
    if (omp_set_num_threads != nullptr) omp_set_num_threads(1);
    if (MKL_Set_Num_Threads_Local != nullptr) {
      mkl_ = MKL_Set_Num_Threads_Local(1);
    }
  }
  ~OneThread() {
    if (omp_set_num_threads != nullptr) omp_set_num_threads(count_);
    if (MKL_Set_Num_Threads_Local != nullptr) MKL_Set_Num_Threads_Local(mkl_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int count_;
  int mkl_ = 0;
};

}  // namespace

void RunOnCpu(const OperatorInfo& info, torch::jit::Stack* stack) {
  const OneThread one_thread;
  SilentWarnings silent;
  const c10::WarningUtils::WarningHandlerGuard quiet(&silent);
  const at::DisableRecordFunctionGuard unprofiled;
  const c10::impl::ExcludeDispatchKeyGuard uncast(
      c10::autocast_dispatch_keyset);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  // Kernels that return several outputs refer to them after the stack has let
  // go of its own.
  const torch::jit::Stack held = *stack;
  info.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU),
                              stack);
}

}  // namespace djinn::capture
