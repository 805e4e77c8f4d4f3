// Tests that the workers of a virtual device divide the rows of a registered
// callable's batch, or pass them through their stages in micro-batches: the
// results, the bytes that cross, and calls that are not divided.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client_lib/cluster/embedded_cluster.h"
#include "djinn/djinn.h"
#include "djinn/v1/admin.pb.h"
#include "djinn/v1/batch.pb.h"
#include "gtest/gtest.h"
#include "tests/e2e/admin_client.h"
#include "tests/e2e/eventually.h"

namespace djinn {
namespace {

// Two workers cannot have half of three layers each.
constexpr int64_t kRows = 384, kWidth = 1024, kLayers = 3;
using Tensors = std::vector<at::Tensor>;
using Function = std::function<Tensors(const Tensors&)>;

class SharedRowsTest : public testing::Test {
 protected:
  SharedRowsTest() {
    ClusterOptions options;
    options.workers = 2;
    options.worker_threads = 1;
    cluster_ = ClusterProcesses::Start(options).value();
    at::set_num_threads(1);
    ConnectOptions connect;
    connect.coordinator = cluster_->coordinator_address();
    connect.token_file = cluster_->token_file();
    connect.program = "shared_rows";
    connect.device_workers[0] = 2;
    EXPECT_EQ(Connect(connect), absl::OkStatus());
    SetExecutionMode(ExecutionMode::kFast);
    at::manual_seed(5);
    for (int64_t i = 0; i < kLayers; ++i) {
      weights_.push_back(at::randn({kWidth, kWidth}) / 32);
      remote_weights_.push_back(weights_.back().to(Device()));
    }
  }
  ~SharedRowsTest() override {
    SetExecutionMode(ExecutionMode::kStrict);
    EXPECT_EQ(Close(), absl::OkStatus());
  }

  static at::Tensor Layers(at::Tensor x, const Tensors& weights) {
    for (const at::Tensor& weight : weights) {
      x = at::relu(at::linear(x, weight));
    }
    return x;
  }

  CompiledFunction Compiled(Function function) {
    CompileOptions options;
    options.parameters = remote_weights_;
    return CompiledFunction(std::move(function), options);
  }

  // Calls `compiled` with new rows and compares the result.
  void Check(CompiledFunction& compiled, const Function& local) {
    const at::Tensor x = at::randn({kRows, kWidth});
    const at::Tensor actual = compiled({x.to(Device())})[0].cpu();
    const at::Tensor expected = local({x})[0];
    EXPECT_TRUE(at::allclose(actual, expected, 1e-4, 1e-4))
        << (actual - expected).abs().max();
  }

  v1::BatchPlan ExplainedBatch() { return Explained().batch(); }
  v1::DeviceExplanation Explained() {
    const AdminClient admin(cluster_->coordinator_address(),
                            cluster_->admin_token_file());
    v1::ExplainSessionRequest request;
    request.set_session_id(admin.SessionOf("shared_rows").session_id());
    v1::SessionExplanation explanation;
    EXPECT_TRUE(
        admin.Call(&v1::Admin::Stub::ExplainSession, request, &explanation));
    for (const v1::DeviceExplanation& device : explanation.devices()) {
      if (device.has_batch()) return device;
    }
    return {};
  }

  const c10::InferenceMode no_gradients_;
  std::unique_ptr<ClusterProcesses> cluster_;
  Tensors weights_, remote_weights_;
};

TEST_F(SharedRowsTest, BothWorkersExecuteTheirPart) {
  CompiledFunction compiled = Compiled([this](const Tensors& x) {
    return Tensors{Layers(x[0], remote_weights_)};
  });
  const Function local = [this](const Tensors& x) {
    return Tensors{Layers(x[0], weights_)};
  };
  ASSERT_TRUE(Eventually([&] {
    Check(compiled, local);
    return compiled.statistics().replays > 0;
  })) << compiled.statistics().refusal;
  const v1::BatchPlan plan = ExplainedBatch();
  EXPECT_EQ(plan.problem(), "");
  EXPECT_EQ(plan.rows(), static_cast<uint64_t>(kRows));
  ASSERT_EQ(plan.parts_size(), 2);
  EXPECT_NE(plan.parts(0).worker_id(), plan.parts(1).worker_id());
  EXPECT_GT(plan.stage_seconds(), 0);
  // In every call, some rows go to the other worker and their results return.
  // The weights moved there earlier.
  const uint64_t copies = GetStatistics().device_copies;
  const uint64_t replays = compiled.statistics().replays;
  for (int i = 0; i < 4; ++i) Check(compiled, local);
  EXPECT_EQ(compiled.statistics().replays, replays + 4);
  EXPECT_EQ(GetStatistics().device_copies, copies + 8);
  // A change of the weights changes them on both workers.
  weights_[1].mul_(0.5);
  remote_weights_[1].mul_(0.5);
  Check(compiled, local);
  EXPECT_EQ(compiled.statistics().replays, replays + 5);
  // Strict mode promises bits, so it does not divide the rows.
  SetExecutionMode(ExecutionMode::kStrict);
  Check(compiled, local);
  EXPECT_EQ(compiled.statistics().replays, replays + 5);
}

// Each worker can have two of the four layers. A stage of two layers takes as
// long as all layers with half of the rows, and neither worker needs all
// weights. The layers are so large that the transferred bytes hardly matter.
TEST_F(SharedRowsTest, RowsFollowOneAnotherThroughTheStages) {
  constexpr int64_t kMany = 512, kWide = 2048;
  weights_.clear();
  remote_weights_.clear();
  for (int i = 0; i < 4; ++i) {
    weights_.push_back(at::randn({kWide, kWide}) / 45);
    remote_weights_.push_back(weights_.back().to(Device()));
  }
  const auto forward = [](at::Tensor x, const Tensors& weights) {
    // The result of the first stage is used twice, and the second stage writes
    // it.
    x = at::relu(at::linear(x, weights[0]));
    at::Tensor between = at::linear(x, weights[1]);
    x = at::linear(between, weights[2]);
    between.add_(x, 0.5);
    return Tensors{at::linear(between, weights[3])};
  };
  CompiledFunction compiled = Compiled(
      [&](const Tensors& x) { return forward(x[0], remote_weights_); });
  const auto check = [&] {
    const at::Tensor x = at::randn({kMany, kWide});
    const Tensors actual = compiled({x.to(Device())});
    const Tensors expected = forward(x, weights_);
    const at::Tensor here = actual[0].cpu();
    EXPECT_TRUE(at::allclose(here, expected[0], 1e-4, 1e-4))
        << (here - expected[0]).abs().max();
  };
  ASSERT_TRUE(Eventually([&] {
    check();
    return compiled.statistics().replays > 0;
  })) << compiled.statistics().refusal;
  const v1::DeviceExplanation explained = Explained();
  const v1::BatchPlan& plan = explained.batch();
  EXPECT_EQ(plan.problem(), "") << plan.DebugString();
  ASSERT_GE(plan.parts_size(), 2);
  EXPECT_EQ(plan.parts(1).worker_id(), "");
  EXPECT_EQ(explained.stages().stages_size(), 2);
  EXPECT_EQ(explained.stages().fingerprint(), plan.fingerprint());
  // One value of each micro-batch goes to the other worker, and one comes back.
  const auto parts = static_cast<uint64_t>(plan.parts_size());
  const uint64_t copies = GetStatistics().device_copies;
  const uint64_t replays = compiled.statistics().replays;
  for (int i = 0; i < 4; ++i) check();
  EXPECT_EQ(compiled.statistics().replays, replays + 4);
  EXPECT_EQ(GetStatistics().device_copies, copies + 4 * 2 * parts);
  weights_[3].mul_(0.5);
  remote_weights_[3].mul_(0.5);
  check();
  EXPECT_EQ(compiled.statistics().replays, replays + 5);
}

TEST_F(SharedRowsTest, FunctionThatMixesRowsIsNotSharedAndSaysWhy) {
  CompiledFunction compiled = Compiled([this](const Tensors& x) {
    return Tensors{at::softmax(Layers(x[0], remote_weights_), 0)};
  });
  const Function local = [this](const Tensors& x) {
    return Tensors{at::softmax(Layers(x[0], weights_), 0)};
  };
  ASSERT_TRUE(Eventually([&] {
    Check(compiled, local);
    return compiled.statistics().refusal.find("softmax") != std::string::npos;
  })) << compiled.statistics().refusal;
  EXPECT_EQ(compiled.statistics().replays, 0u);
  EXPECT_NE(ExplainedBatch().problem().find("softmax"), std::string::npos);
}

}  // namespace
}  // namespace djinn
