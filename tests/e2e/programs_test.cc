// Tests programs through real processes: the results on remote devices equal
// the CPU's.
#include <torch/torch.h>

#include <cstdlib>
#include <thread>
#include <vector>

#include "tests/e2e/same_program.h"

namespace djinn {
namespace {

class ProgramsTest : public ProgramTest {};

torch::nn::Sequential Mlp(double dropout) {
  return torch::nn::Sequential(torch::nn::Linear(20, 32), torch::nn::ReLU(),
                               torch::nn::Dropout(dropout),
                               torch::nn::Linear(32, 5));
}

TEST_F(ProgramsTest, MlpForward) {
  ExpectSame([](torch::Device device) {
    torch::manual_seed(3);
    auto model = Mlp(0);
    auto input = torch::randn({8, 20});
    model->to(device);
    torch::NoGradGuard no_grad;
    return std::vector<torch::Tensor>{model->forward(input.to(device))};
  });
}

TEST_F(ProgramsTest, FiftySgdStepsWithDropout) {
  ExpectSame([](torch::Device device) {
    torch::manual_seed(3);
    auto model = Mlp(0.25);
    auto inputs = torch::randn({50, 8, 20});
    auto targets = torch::randint(0, 5, {50, 8});
    model->to(device);
    torch::manual_seed(11);
    torch::optim::SGD sgd(model->parameters(),
                          torch::optim::SGDOptions(0.1).momentum(0.9));
    std::vector<torch::Tensor> results;
    for (int step = 0; step < 50; ++step) {
      sgd.zero_grad();
      auto loss = torch::nn::functional::cross_entropy(
          model->forward(inputs[step].to(device)), targets[step].to(device));
      loss.backward();
      sgd.step();
      results.push_back(loss.detach());
    }
    for (const auto& parameter : model->parameters()) {
      results.push_back(parameter.detach());
    }
    return results;
  });
  EXPECT_EQ(SynchronousCalls().size(), 0u);
}

TEST_F(ProgramsTest, InPlaceOnViews) {
  ExpectSame([](torch::Device device) {
    auto x = torch::arange(24, torch::kFloat).view({4, 6}).to(device);
    auto y = x.clone();
    y.view({6, 4}).mul_(2);
    y.t().select(0, 1).zero_();
    y.slice(0, 0, 2).copy_(y.slice(0, 2, 4));
    y.index_put_({torch::indexing::Slice(), 3}, 7.0);
    y.select(1, 0).add_(x.select(0, 0).slice(0, 0, 4), 0.5);
    x.slice(1, 0, 6, 2).fill_(-1);
    return std::vector<torch::Tensor>{x, y, y.t(), x.select(1, 2)};
  });
}

TEST_F(ProgramsTest, BooleanIndexAndOtherDataDependentShapes) {
  ExpectSame([](torch::Device device) {
    auto x = torch::arange(12, torch::kFloat).view({3, 4}).to(device);
    auto picked = x.index({x > 4.5});
    auto rows = x.index({torch::tensor({2, 0}).to(device)});
    auto cpu_rows = x.index({torch::tensor({1, 1})});
    return std::vector<torch::Tensor>{picked, rows, cpu_rows, x.nonzero(),
                                      x.masked_select(x < 3)};
  });
}

TEST_F(ProgramsTest, MixedDtypes) {
  ExpectSame([](torch::Device device) {
    auto i = torch::arange(6).to(device);
    auto f = torch::linspace(0, 1, 6).to(device);
    auto d = f.to(torch::kDouble);
    auto h = f.to(torch::kBFloat16);
    auto b = f > 0.5;
    return std::vector<torch::Tensor>{i + 1,
                                      i + 1.5,
                                      i * f,
                                      f * d,
                                      h + f,
                                      b + i,
                                      b.to(torch::kFloat) * 2,
                                      i.to(torch::kInt) / 2,
                                      d.to(torch::kHalf),
                                      torch::where(b, i, -i),
                                      torch::cat({f, d}),
                                      f.sum(),
                                      i.to(torch::kFloat).mean()};
  });
}

TEST_F(ProgramsTest, RandomNumbersAreTheCpus) {
  ExpectSame([](torch::Device device) {
    auto options = torch::TensorOptions(device);
    auto a = torch::randn({5}, options);
    auto b = torch::rand({3, 3}, options);
    auto c = torch::empty({7}, options).normal_(1, 2);
    auto d = torch::randint(0, 100, {9}, options);
    auto e = torch::dropout(b, 0.5, true);
    auto f = torch::bernoulli(b);
    auto g = torch::randperm(6, options);
    return std::vector<torch::Tensor>{a, b, c, d, e, f, g};
  });
}

TEST_F(ProgramsTest, FourThreadsShareTensors) {
  constexpr int kThreads = 4, kRounds = 50;
  auto shared = torch::ones({64}).to(Device(0));
  std::vector<torch::Tensor> sums(kThreads), results(kThreads);
  std::vector<std::thread> threads;
  auto counters = torch::zeros({kThreads, 64}).to(Device(0));
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      torch::NoGradGuard no_grad;
      auto mine = counters.select(0, t);
      auto value = shared * (t + 1);
      for (int round = 0; round < kRounds; ++round) {
        mine.add_(shared);       // neighbours share this storage
        value = value + shared;  // all threads read this one
        if (round % 10 == t) {
          EXPECT_EQ(mine.select(0, 0).item<float>(), round + 1);
        }
      }
      results[t] = value;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(torch::equal(counters.cpu(), torch::full({kThreads, 64}, 50.f)));
  for (int t = 0; t < kThreads; ++t) {
    EXPECT_TRUE(torch::equal(results[t].cpu(),
                             torch::full({64}, static_cast<float>(t + 51))));
  }
}

TEST_F(ProgramsTest, TwoDevicesAreTwoWorkers) {
  auto a = torch::randn({100, 100});
  auto first = a.to(Device(0)), second = a.to(Device(1));
  auto product = torch::mm(first, first);
  auto moved = product.to(Device(1)) + second;
  EXPECT_TRUE(torch::equal(moved.cpu(), torch::mm(a, a) + a));
  const auto where = WhereIs(0), other = WhereIs(1);
  ASSERT_TRUE(where.ok() && other.ok());
  EXPECT_NE(where->worker_id, other->worker_id);
  // This test runs over both transports.
  const char* const allowed = std::getenv("DJINN_SHARED_MEMORY");
  EXPECT_EQ(where->transport, allowed != nullptr && std::string(allowed) == "0"
                                  ? "gRPC"
                                  : "shared memory");
  EXPECT_THROW(first + second, c10::Error);
}

TEST_F(ProgramsTest, ReadsOfViewsMoveOnlyTheirBytes) {
  auto big = torch::zeros({1000, 1000}, torch::TensorOptions(Device(0)));
  (void)big.select(0, 0).cpu();
  const uint64_t before = GetStatistics().bytes_down;
  EXPECT_TRUE(torch::equal(big.select(1, 7).cpu(), torch::zeros({1000})));
  EXPECT_LT(GetStatistics().bytes_down - before, 5000u);
}

TEST_F(ProgramsTest, LargeTensorsGoThereAndBack) {
  auto a = torch::randn({1200, 1000});
  auto remote = a.to(Device(0));
  a.add_(1);  // the source belongs to the program again
  ExpectEqual(remote, a.sub(1).add(1).sub(1).cpu() * 0 + remote.cpu());
  EXPECT_TRUE(torch::equal((remote + 1).cpu(), remote.cpu() + 1));
}

// Smaller than what gRPC keeps of a call for a retry.
TEST_F(ProgramsTest, AFirstUploadJustAboveTheInlineLimitIsReleased) {
  const auto a = torch::arange(40000, torch::kFloat);
  EXPECT_TRUE(torch::equal(a.to(Device(0)).cpu(), a));
}

// The formula makes zeros that have no memory on the CPU.
TEST_F(ProgramsTest, AGradientThatIsZeroEverywhere) {
  const auto a = torch::tensor({-2.0f, 0.0f, 3.0f});
  auto x = a.to(Device(0)).requires_grad_();
  (x.sgn() * x).sum().backward();
  EXPECT_TRUE(torch::equal(x.grad().cpu(), a.sgn()));
}

TEST_F(ProgramsTest, ALoopRepeatsOnTheSameGraphs) {
  torch::NoGradGuard no_grad;
  auto model = Mlp(0);
  model->to(Device(0));
  auto step = [&](int i) {
    auto x = torch::full({4, 20}, static_cast<float>(i)).to(Device(0));
    return model->forward(x).sum().item<float>();
  };
  for (int i = 0; i < 3; ++i) step(i);
  const Statistics before = GetStatistics();
  for (int i = 0; i < 20; ++i) step(i);
  const Statistics after = GetStatistics();
  EXPECT_EQ(after.graphs_defined, before.graphs_defined);
  EXPECT_EQ(after.runs - before.runs, 20u);
}

TEST_F(ProgramsTest, TrainingOneSessionLeavesSharedWeightsAlone) {
  auto weights = torch::ones({300, 300});
  auto first = weights.to(Device(0));
  auto second = weights.to(Device(0));  // the same content, held already
  EXPECT_EQ(GetStatistics().uploads_already_held, 1u);
  first.mul_(3);
  EXPECT_TRUE(torch::equal(second.cpu(), weights));
  ASSERT_TRUE(Close().ok());
  ASSERT_TRUE(Connect(environment->cluster().connect_options()).ok());
  auto again = weights.to(Device(0));
  EXPECT_TRUE(torch::equal(again.cpu(), weights));
}

TEST_F(ProgramsTest, ATensorOfAClosedSessionRaises) {
  auto old = torch::ones({2}).to(Device(0));
  ASSERT_TRUE(Close().ok());
  ASSERT_TRUE(Connect(environment->cluster().connect_options()).ok());
  EXPECT_THROW(old + 1, Error);
  EXPECT_THROW(old.cpu(), Error);
}

}  // namespace
}  // namespace djinn
