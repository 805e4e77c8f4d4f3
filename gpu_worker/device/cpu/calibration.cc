#include "gpu_worker/device/cpu/calibration.h"

#include <sys/resource.h>

#include <algorithm>
#include <thread>

#include "ATen/Parallel.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/mm.h"
#include "ATen/ops/relu.h"
#include "ATen/ops/zeros.h"
#include "absl/time/time.h"
#include "c10/core/InferenceMode.h"

namespace djinn::worker {
namespace {

// Numbers of tries, of some milliseconds each: those that count, and all.
constexpr int kTries = 7;
constexpr int kMaxTries = 10 * kTries;
constexpr int64_t kMatrix = 384;
constexpr int64_t kCopiedBytes = 32 << 20;
constexpr int kCalls = 100;

// Returns how often the kernel took a processor from this process while the
// process had work for it.
int64_t LostProcessors() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

template <typename Work>
double BestSeconds(Clock* clock, Work work) {
  return absl::ToDoubleSeconds(BestTime(clock, LostProcessors, work));
}

v1::DeviceSpeed Measure(Clock* clock) {
  const c10::InferenceMode no_gradients;
  v1::DeviceSpeed speed;
  const at::Tensor a = at::zeros({kMatrix, kMatrix});
  at::Tensor product = at::empty({kMatrix, kMatrix});
  speed.set_flops_per_second(
      2.0 * kMatrix * kMatrix * kMatrix /
      BestSeconds(clock, [&] { at::mm_out(product, a, a); }));
  const at::Tensor source = at::zeros({kCopiedBytes}, at::kByte);
  at::Tensor target = at::empty({kCopiedBytes}, at::kByte);
  speed.set_bytes_per_second(2.0 * kCopiedBytes /
                             BestSeconds(clock, [&] { target.copy_(source); }));
  const at::Tensor one = at::zeros({1});
  speed.set_seconds_per_call(BestSeconds(clock,
                                         [&] {
                                           for (int i = 0; i < kCalls; ++i)
                                             at::relu(one);
                                         }) /
                             kCalls);
  return speed;
}

}  // namespace

absl::Duration BestTime(Clock* clock, const std::function<int64_t()>& losses,
                        absl::FunctionRef<void()> work) {
  absl::Duration best = absl::InfiniteDuration();
  absl::Duration best_of_all = absl::InfiniteDuration();
  int counted = 0;
  for (int i = 0; i < kMaxTries && counted < kTries; ++i) {
    const int64_t lost = losses();
    const absl::Duration start = clock->Monotonic();
    work();
    const absl::Duration took = clock->Monotonic() - start;
    best_of_all = std::min(best_of_all, took);
    if (losses() != lost) continue;
    best = std::min(best, took);
    ++counted;
  }
  return std::max(counted > 0 ? best : best_of_all, absl::Nanoseconds(1));
}

// Measures in a thread of its own. OpenMP keeps helpers for every thread that
// ever needed some. Once there are more helpers than processors, none of them
// spins between operators any more, including the executor's.
v1::DeviceSpeed MeasureCpuSpeed(Clock* clock) {
  v1::DeviceSpeed speed;
  std::thread([&] {
    at::init_num_threads();
    speed = Measure(clock);
  }).join();
  return speed;
}

}  // namespace djinn::worker
