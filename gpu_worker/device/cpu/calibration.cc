#include "gpu_worker/device/cpu/calibration.h"

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

// Some milliseconds each; workers that start together disturb one another.
constexpr int kTries = 7;
constexpr int64_t kMatrix = 384;
constexpr int64_t kCopiedBytes = 32 << 20;
constexpr int kCalls = 100;

// The least time that `work` took, never 0.
template <typename Work>
double BestSeconds(Clock* clock, Work work) {
  absl::Duration best = absl::InfiniteDuration();
  for (int i = 0; i < kTries; ++i) {
    const absl::Duration start = clock->Monotonic();
    work();
    best = std::min(best, clock->Monotonic() - start);
  }
  return absl::ToDoubleSeconds(std::max(best, absl::Nanoseconds(1)));
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

// In a thread of its own: OpenMP keeps helpers for every thread that ever
// needed some, and once they are more than the processors none of them spins
// between operators any more, the executor's neither.
v1::DeviceSpeed MeasureCpuSpeed(Clock* clock) {
  v1::DeviceSpeed speed;
  std::thread([&] {
    at::init_num_threads();
    speed = Measure(clock);
  }).join();
  return speed;
}

}  // namespace djinn::worker
