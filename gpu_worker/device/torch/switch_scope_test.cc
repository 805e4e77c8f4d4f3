#include "gpu_worker/device/torch/switch_scope.h"

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "ATen/ATen.h"
#include "ATen/Context.h"
#include "ATen/Parallel.h"
#include "common/torch/process_switches.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using srg::Switches;

// Each sets one switch.
std::vector<Switches> Others() {
  std::vector<Switches> all;
  const auto add = [&](auto set) { set(&all.emplace_back()); };
  add([](Switches* s) { s->mkldnn_disabled = true; });
  add([](Switches* s) { s->mkldnn_deterministic = true; });
  add([](Switches* s) { s->nnpack_disabled = true; });
  add([](Switches* s) { s->cudnn_disabled = true; });
  add([](Switches* s) { s->cudnn_deterministic = true; });
  add([](Switches* s) { s->cublas_fp16_accumulation = true; });
  for (const auto sums :
       {srg::ReducedSums::kSplitOnly, srg::ReducedSums::kNone}) {
    add([&](Switches* s) { s->cublas_fp16_sums = sums; });
    add([&](Switches* s) { s->cublas_bf16_sums = sums; });
  }
  for (size_t i = 0; i < Switches::kProducts; ++i) {
    add([&](Switches* s) { s->precisions[i] = srg::Float32Precision::kIeee; });
    if (i >= Switches::kCudaConv) continue;
    add([&](Switches* s) { s->precisions[i] = srg::Float32Precision::kTf32; });
  }
  // torch.set_float32_matmul_precision("medium").
  add([](Switches* s) {
    s->precisions[Switches::kMkldnnMatmul] = srg::Float32Precision::kBf16;
    s->precisions[Switches::kCudaMatmul] = srg::Float32Precision::kTf32;
  });
  return all;
}

TEST(SwitchScopeTest, EverySwitchIsSetAndRestored) {
  const Switches before = ReadSwitches();
  for (const Switches& switches : Others()) {
    {
      const SwitchScope scope(switches);
      EXPECT_EQ(ReadSwitches(), switches);
    }
    EXPECT_EQ(ReadSwitches(), before);
  }
}

TEST(SwitchScopeTest, TheMatmulPrecisionAgreesWithItsParts) {
  Switches medium;
  medium.precisions[Switches::kMkldnnMatmul] = srg::Float32Precision::kBf16;
  medium.precisions[Switches::kCudaMatmul] = srg::Float32Precision::kTf32;
  {
    const SwitchScope scope(medium);
    EXPECT_EQ(at::globalContext().float32MatmulPrecision(),
              at::Float32MatmulPrecision::MEDIUM);
  }
  EXPECT_EQ(at::globalContext().float32MatmulPrecision(),
            at::Float32MatmulPrecision::HIGHEST);
}

// Halves enough numbers that all compute threads take a share.
bool AllAreFlushed() {
  const at::Tensor tiny = at::full({1 << 20}, 2e-38, at::kFloat);
  return tiny.mul(0.1).eq(0).all().item<bool>();
}

TEST(SwitchScopeTest, ComputeThreadsFlushWithinTheScopeOnly) {
  at::set_num_threads(2);
  const at::Tensor tiny = at::full({1 << 20}, 2e-38, at::kFloat);
  EXPECT_FALSE(tiny.mul(0.1).eq(0).any().item<bool>());
  // A thread takes over the mode of the one that starts it.
  std::promise<void> entered;
  std::thread other([&] {
    entered.get_future().wait();
    EXPECT_FALSE(AllAreFlushed());
  });
  Switches switches;
  switches.flush_denormal = true;
  {
    const SwitchScope scope(switches);
    EXPECT_TRUE(AllAreFlushed());
    entered.set_value();
    other.join();
  }
  EXPECT_FALSE(tiny.mul(0.1).eq(0).any().item<bool>());
}

// Threads of either kind see their own switches, always.
TEST(SwitchScopeTest, ThreadsDoNotSeeEachOthersSwitches) {
  Switches other;
  other.mkldnn_disabled = true;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, own = i % 2 == 0 ? Switches() : other] {
      for (int k = 0; k < 50; ++k) {
        const SwitchScope scope(own);
        if (at::globalContext().userEnabledMkldnn() == own.mkldnn_disabled) {
          ++wrong;
        }
        std::this_thread::yield();
        if (at::globalContext().userEnabledMkldnn() == own.mkldnn_disabled) {
          ++wrong;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(at::globalContext().userEnabledMkldnn());
}

}  // namespace
}  // namespace djinn::worker
