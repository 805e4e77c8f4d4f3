// Tests the CUDA plug-in on a real GPU against the CPU. Without a GPU it skips
// itself and says why. DJINN_CUDA_PLUGIN names the plug-in; otherwise the test
// looks for it beside this program.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "gpu_worker/device/cuda/attention_kernels.h"
#include "gpu_worker/device/cuda/load_plugin.h"
#include "gpu_worker/device/cuda/testing/run_tester.h"
#include "gpu_worker/device/torch/device_speed.h"
#include "gtest/gtest.h"
#include "torch/torch.h"

namespace djinn::worker {
namespace {

// Returns the tester that all tests share: a process makes one such device.
RunTester* SharedTester() {
  static RunTester* const tester = []() -> RunTester* {
    const char* const named = std::getenv("DJINN_CUDA_PLUGIN");
    absl::StatusOr<std::unique_ptr<Device>> device =
        LoadCudaDevice(named != nullptr ? named : FindCudaPlugin(),
                       {.memory_bytes = uint64_t{1} << 30});
    if (!device.ok()) {
      std::cout << "skipped: " << device.status().message() << std::endl;
      return nullptr;
    }
    return new RunTester(*std::move(device));
  }();
  return tester;
}

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (SharedTester() == nullptr) {
      GTEST_SKIP() << "no CUDA device that this process can use";
    }
  }
  RunTester& tester() { return *SharedTester(); }

  // Builds (2, 3) times (3, 2), added to `bias`.
  AtenGraph Linear() {
    AtenGraph s;
    const uint32_t x = s.Bound(), w = s.Bound(), b = s.Bound();
    const uint32_t product = s.Result(), sum = s.Result();
    s.Call("mm", "", {AtenGraph::View(x, {2, 3}), AtenGraph::View(w, {3, 2})},
           {AtenGraph::View(product, {2, 2})});
    s.Call("add", "Tensor",
           {AtenGraph::View(product, {2, 2}), AtenGraph::View(b, {2, 2}),
            int64_t{1}},
           {AtenGraph::View(sum, {2, 2})});
    return s;
  }
};

TEST_F(CudaDeviceTest, SaysWhatItIs) {
  EXPECT_EQ(tester().device().name(), "cuda:0");
  EXPECT_EQ(tester().device().memory_bytes(), uint64_t{1} << 30);
  EXPECT_EQ(tester().device().operators()->GeneratorBytes().value(), 16u);
  EXPECT_TRUE(tester().device().Health().ok());
}

TEST_F(CudaDeviceTest, ItsSpeedCanBeMeasured) {
  const auto speed = MeasureDeviceSpeed(&tester().device(), Clock::Real());
  ASSERT_TRUE(speed.ok()) << speed.status();
  // The bounds are far below and far above any GPU's speed.
  EXPECT_GT(speed->flops_per_second(), 1e11);
  EXPECT_LT(speed->flops_per_second(), 1e16);
  EXPECT_GT(speed->bytes_per_second(), 1e10);
  EXPECT_LT(speed->bytes_per_second(), 1e14);
  EXPECT_GT(speed->seconds_per_call(), 1e-7);
  EXPECT_LT(speed->seconds_per_call(), 1e-3);
}

TEST_F(CudaDeviceTest, BytesGoThereAndBack) {
  // The values exceed all staging blocks together.
  Floats values(48 << 20);
  for (size_t i = 0; i < values.size(); ++i) values[i] = float(i % 8191);
  const uint64_t id = tester().Upload(values);
  EXPECT_EQ(tester().Values(id), values);
  tester().Free(id);
}

TEST_F(CudaDeviceTest, ComputesWhatTheCpuComputes) {
  const auto plan = tester().Admit(Linear());
  const auto ids = tester().Run(*plan, {tester().Upload({1, 2, 3, 4, 5, 6}),
                                        tester().Upload({1, 0, 0, 1, 1, 1}),
                                        tester().Upload({1, 1, 1, 1})});
  EXPECT_EQ(tester().Values(ids[4]), (Floats{5, 6, 11, 12}));
}

TEST_F(CudaDeviceTest, AnUploadDoesNotWaitForKernels) {
  // The test enqueues long kernels and uploads before they are done.
  AtenGraph s;
  const uint32_t x = s.Bound();
  constexpr int64_t kSize = 8192;
  uint32_t from = x;
  for (int i = 0; i < 8; ++i) {
    const uint32_t next = s.Result();
    s.Call("mm", "",
           {AtenGraph::View(from, {kSize, kSize}),
            AtenGraph::View(x, {kSize, kSize})},
           {AtenGraph::View(next, {kSize, kSize})});
    from = next;
  }
  Device& device = tester().device();
  const auto program = device.operators()->Compile(s.get()).value();
  std::vector<std::shared_ptr<Buffer>> slots(s.get().slots.size());
  slots[x] = device.Allocate(kSize * kSize * 4).value();
  const auto run = program->BeginRun();
  const auto seconds = [&](auto work) {
    const absl::Duration start = Clock::Real()->Monotonic();
    work();
    return absl::ToDoubleSeconds(Clock::Real()->Monotonic() - start);
  };
  const auto ask = [&] {
    for (uint32_t i = 0; i < s.get().nodes.size(); ++i) {
      std::vector<NodeResult> results;
      NodeInput input{slots, {}, {}};
      input.run = run.get();
      ASSERT_TRUE(program->Execute(i, input, &results).ok());
      slots[i + 1] = results[0].buffer;
    }
  };
  std::vector<LateFailure> late;
  ask();
  ASSERT_TRUE(run->Settle(&late).ok());
  const double asking = seconds(ask);
  const std::string bytes(8 << 20, 'x');
  std::shared_ptr<Buffer> uploaded;
  const double uploading = seconds([&] {
    uploaded = device.AllocateUnset(bytes.size()).value();
    ASSERT_TRUE(device.Write(uploaded.get(), 0, bytes).ok());
    // The upload arrives before the kernels are done.
    EXPECT_EQ(device.HostBytes(uploaded).value().bytes, bytes);
  });
  const double settling =
      seconds([&] { ASSERT_TRUE(run->Settle(&late).ok()); });
  std::cout << "asking " << asking << " s, uploading and reading back "
            << uploading << " s, settling " << settling << " s" << std::endl;
  // The bytes were read back long before the kernels were done.
  EXPECT_LT(uploading, settling);
}

TEST_F(CudaDeviceTest, DrawsFollowThePhiloxState) {
  AtenGraph s;
  const uint32_t generator = s.Generator();
  const uint32_t drawn = s.Result();
  const srg::Argument none = std::monostate();
  s.Call("rand", "generator",
         {std::vector<int64_t>{4}, srg::GeneratorSlot{generator}, none, none,
          srg::WorkerDevice{}, none},
         {AtenGraph::View(drawn, {4})});
  const auto plan = tester().Admit(s);
  const uint64_t one = tester().SeededGenerator(7);
  const uint64_t other = tester().SeededGenerator(7);
  const Floats first = tester().Values(tester().Run(*plan, {one})[drawn]);
  const Floats second = tester().Values(tester().Run(*plan, {one})[drawn]);
  EXPECT_NE(first, second);
  EXPECT_EQ(tester().Values(tester().Run(*plan, {other})[drawn]), first);
  const std::string state = tester().Bytes(one);
  ASSERT_EQ(state.size(), 16u);
  EXPECT_EQ(state[0], 7);
  EXPECT_TRUE(tester().device().operators()->CheckGenerator(state).ok());
}

TEST_F(CudaDeviceTest, IndicesOutOfRangeLeaveTheDeviceAlone) {
  AtenGraph s;
  const uint32_t table = s.Bound(), indices = s.Bound();
  const uint32_t rows = s.Embedding(table, indices, 3, 2, 2);
  const auto plan = tester().Admit(s);
  const uint64_t table_id = tester().Upload({0, 1, 2, 3, 4, 5});
  const auto bad =
      tester().Run(*plan, {table_id, tester().UploadIndices({2, 1 << 30})});
  ASSERT_NE(tester().Poison(bad[rows]), nullptr);
  EXPECT_EQ(tester().Poison(bad[rows])->operator_name(), "aten::embedding");
  EXPECT_TRUE(tester().device().Health().ok());
  const auto good =
      tester().Run(*plan, {table_id, tester().UploadIndices({2, 0})});
  EXPECT_EQ(tester().Values(good[rows]), (Floats{4, 5, 0, 1}));
}

TEST_F(CudaDeviceTest, AttentionAndItsGradientsAreTheCpus) {
  torch::manual_seed(4);
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const int64_t rows : {5, 32, 40}) {
      for (const bool causal : {false, true}) {
        for (const bool heads_inside : {false, true}) {
          SCOPED_TRACE(testing::Message()
                       << type << ", " << rows << " rows"
                       << (causal ? ", causal" : "")
                       << (heads_inside ? ", heads inside" : ""));
          const auto draw = [&] {
            const at::Tensor drawn =
                heads_inside ? torch::randn({2, rows, 3, 16}).transpose(1, 2)
                             : torch::randn({2, 3, rows, 16});
            return drawn.to(type);
          };
          const at::Tensor query = draw(), key = draw(), value = draw();
          const at::Tensor gradient = draw();
          const auto here = [&](const at::Tensor& tensor) {
            return tensor.to(at::kDouble);
          };
          const auto there = [&](const at::Tensor& tensor) {
            return tensor.to(at::kCUDA);
          };
          const auto [due, due_sums] =
              AttentionForward(here(query), here(key), here(value), 0, causal,
                               std::nullopt, std::nullopt);
          const auto [out, sums] =
              AttentionForward(there(query), there(key), there(value), 0,
                               causal, std::nullopt, std::nullopt);
          const auto due_gradients = AttentionBackward(
              here(gradient), here(query), here(key), here(value), due,
              due_sums, 0, causal, std::nullopt, std::nullopt);
          // A worker keeps the results in these layouts: the output like the
          // query, and the sums like a CPU's.
          const auto gradients = AttentionBackward(
              there(gradient), there(query), there(key), there(value),
              at::empty_like(there(query)).copy_(out),
              sums.transpose(1, 2).contiguous().transpose(1, 2), 0, causal,
              std::nullopt, std::nullopt);
          const double tolerance = type == at::kFloat ? 1e-4 : 3e-2;
          const auto expect_close = [&](const at::Tensor& actual,
                                        const at::Tensor& expected) {
            EXPECT_TRUE(torch::allclose(actual.cpu().to(at::kDouble), expected,
                                        tolerance, tolerance));
          };
          expect_close(out, due);
          expect_close(sums, due_sums);
          expect_close(std::get<0>(gradients), std::get<0>(due_gradients));
          expect_close(std::get<1>(gradients), std::get<1>(due_gradients));
          expect_close(std::get<2>(gradients), std::get<2>(due_gradients));
        }
      }
    }
  }
}

TEST_F(CudaDeviceTest, AttentionTakesOperandsThatBeginAnywhere) {
  // Rows of 8 floats start at addresses that are no multiples of 16 bytes.
  AtenGraph s;
  const uint32_t q = s.Bound(), k = s.Bound();
  const uint32_t generator = s.Generator();
  const uint32_t out = s.Result();
  srg::TensorView query = AtenGraph::View(q, {1, 1, 8, 8});
  query.storage_offset = 1;
  srg::TensorView key = AtenGraph::View(k, {1, 1, 1, 8});
  key.storage_offset = 3;
  const srg::Argument none = std::monostate();
  s.Call("scaled_dot_product_attention", "",
         {query, key, key, none, s.Hole(), false, none, false},
         {AtenGraph::View(out, {1, 1, 8, 8})})
      .implicit_generator_slot = generator;
  const Floats values = {0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8};
  const auto ids =
      tester().Run(*tester().Admit(s),
                   {tester().Upload(Floats(65, 0.5f)), tester().Upload(values),
                    tester().SeededGenerator(1)},
                   {0});
  // Every query's result is the value of the only key.
  Floats due;
  for (int row = 0; row < 8; ++row) {
    due.insert(due.end(), values.begin() + 3, values.end());
  }
  EXPECT_EQ(tester().Values(ids[out]), due);
  EXPECT_TRUE(tester().device().Health().ok());
}

TEST_F(CudaDeviceTest, GraphsGiveTheSameBits) {
  AtenGraph s;
  const uint32_t x = s.Bound(), w = s.Bound(), kv = s.Bound();
  const uint32_t t = s.Add(x, w, 3);
  s.AddInPlace(kv, t, 3);
  const uint32_t out = s.Multiply(t, kv, 3);
  const auto plan = tester().Admit(s);
  const uint64_t weight = tester().Upload({10, 20, 30});
  const uint64_t cache = tester().Upload({0, 0, 0});
  Floats expected_cache = {0, 0, 0};
  const uint64_t before = tester().Count("graphs_replayed");
  std::vector<std::pair<uint64_t, Floats>> outs;
  for (int run = 0; run < 20; ++run) {
    const float f = static_cast<float>(run);
    const Floats input = {f, f / 3, -f};
    const auto ids =
        tester().Run(*plan, {tester().Upload(input), weight, cache});
    Floats expected(3);
    for (size_t i = 0; i < 3; ++i) {
      const float sum = input[i] + Floats{10, 20, 30}[i];
      expected_cache[i] += sum;
      expected[i] = sum * expected_cache[i];
    }
    outs.emplace_back(ids[out], expected);
    EXPECT_EQ(tester().Values(cache), expected_cache) << "run " << run;
    for (const auto& [id, values] : outs) {
      EXPECT_EQ(tester().Values(id), values) << "after run " << run;
    }
  }
  EXPECT_GT(tester().Count("graphs_replayed"), before);
  std::cout << "replayed " << tester().Count("graphs_replayed") << ", missed "
            << tester().Count("graphs_missed") << std::endl;
}

TEST_F(CudaDeviceTest, DeviceWorksAfterARefusedAllocation) {
  const absl::Status status =
      tester().device().Allocate(uint64_t{1} << 42).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(tester().device().Health().ok());
  EXPECT_TRUE(tester().device().Allocate(1 << 20).ok());
}

}  // namespace
}  // namespace djinn::worker
