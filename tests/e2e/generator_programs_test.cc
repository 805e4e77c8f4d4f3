// Tests random numbers: a program's own generators and the default one, several
// threads, and states that are copied in both directions.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include <limits>
#include <set>
#include <thread>

#include "tests/e2e/same_program.h"

namespace djinn {
namespace {

using torch::Tensor;

class GeneratorProgramsTest : public ProgramTest {};

torch::Generator MakeGenerator(torch::Device device, uint64_t seed) {
  torch::Generator generator =
      device.is_cpu()
          ? at::detail::createCPUGenerator()
          : at::detail::getPrivateUse1Hooks().getNewGenerator(device.index());
  generator.set_current_seed(seed);
  return generator;
}

torch::Generator DefaultGenerator(torch::Device device) {
  return at::globalContext().defaultGenerator(device);
}

std::vector<Tensor> Draw(torch::Device device, torch::Generator generator) {
  const auto options = torch::TensorOptions(device);
  const Tensor half = torch::full({9}, 0.5, options);
  return {
      torch::randn({5}, generator, options),
      torch::rand({3, 3}, generator, options),
      torch::bernoulli(half, generator),
      torch::randperm(11, generator, options.dtype(torch::kLong)),
      torch::multinomial(half, 4, false, generator),
      torch::empty({7}, options.dtype(torch::kDouble)).normal_(1, 2, generator),
      torch::randint(100, {6}, generator, options)};
}

TEST_F(GeneratorProgramsTest, AGeneratorOfOnesOwn) {
  ExpectSame([](torch::Device device) {
    torch::Generator one = MakeGenerator(device, 5);
    torch::Generator other = MakeGenerator(device, 6);
    std::vector<Tensor> results = Draw(device, one);
    for (const Tensor& each : Draw(device, other)) results.push_back(each);
    for (const Tensor& each : Draw(device, one)) results.push_back(each);
    results.push_back(torch::randn({3}, torch::TensorOptions(device)));
    return results;
  });
}

TEST_F(GeneratorProgramsTest, StatesAreTheCpus) {
  const auto draw = [](torch::Device device, torch::Generator generator) {
    return torch::randn({3}, generator, torch::TensorOptions(device));
  };
  torch::Generator here = MakeGenerator(torch::kCPU, 5);
  torch::Generator there = MakeGenerator(Device(0), 5);
  EXPECT_TRUE(torch::equal(there.get_state(), here.get_state()));
  ExpectEqual(draw(Device(0), there), draw(torch::kCPU, here));
  // The state is in the middle of a pair of normal samples.
  const Tensor state = there.get_state();
  EXPECT_TRUE(torch::equal(state, here.get_state()));
  const Tensor first = draw(Device(0), there);
  const Tensor second = draw(Device(0), there);
  // Copies the state back, and from the CPU to the worker.
  there.set_state(state);
  EXPECT_EQ(there.current_seed(), 5u);
  ExpectEqual(draw(Device(0), there), first.cpu());
  there.set_state(here.get_state());
  ExpectEqual(draw(Device(0), there), draw(torch::kCPU, here));
  ExpectEqual(draw(Device(0), there), second.cpu());
  torch::Generator clone = there.clone();
  ExpectEqual(draw(Device(0), clone), draw(Device(0), there).cpu());
  // Seeds the generator after its state was set.
  there.set_current_seed(5);
  ExpectEqual(draw(Device(0), there),
              draw(torch::kCPU, MakeGenerator(torch::kCPU, 5)));
}

TEST_F(GeneratorProgramsTest, TheDefaultGeneratorsState) {
  ExpectSame([](torch::Device device) {
    torch::manual_seed(4);
    const auto options = torch::TensorOptions(device);
    const Tensor x = torch::ones({64}, options);
    std::vector<Tensor> results = {torch::dropout(x, 0.5, true)};
    const Tensor state = DefaultGenerator(device).get_state();
    results.push_back(torch::dropout(x, 0.5, true));
    results.push_back(torch::randn({3}, options));
    DefaultGenerator(device).set_state(state);
    results.push_back(torch::dropout(x, 0.5, true));
    results.push_back(torch::randn({3}, options));
    results.push_back(state.to(device));
    EXPECT_TRUE(torch::equal(results[1].cpu(), results[3].cpu()));
    return results;
  });
}

TEST_F(GeneratorProgramsTest, AStateOutlivesItsSession) {
  const Tensor state = MakeGenerator(torch::kCPU, 8).get_state();
  torch::Generator generator = MakeGenerator(Device(0), 1);
  generator.set_state(state);
  for (int session = 0; session < 2; ++session) {
    // Like a seed, a state takes effect in each session from its first draw on.
    ExpectEqual(torch::randn({4}, generator, torch::TensorOptions(Device(0))),
                torch::randn({4}, MakeGenerator(torch::kCPU, 8)));
    ASSERT_TRUE(Close().ok());
    ASSERT_TRUE(Connect(environment->cluster().connect_options()).ok());
  }
}

TEST_F(GeneratorProgramsTest, BadStatesChangeNothing) {
  torch::Generator generator = MakeGenerator(Device(0), 3);
  EXPECT_THROW(generator.set_state(torch::zeros({5056}, torch::kByte)),
               c10::Error);
  EXPECT_THROW(generator.set_state(torch::zeros({10}, torch::kByte)),
               c10::Error);
  EXPECT_EQ(generator.get_offset(), 0u);
  EXPECT_THROW(generator.set_offset(4), c10::Error);
  ExpectEqual(torch::randn({4}, generator, torch::TensorOptions(Device(0))),
              torch::randn({4}, MakeGenerator(torch::kCPU, 3)));
}

TEST_F(GeneratorProgramsTest, ThreadsWithGeneratorsOfTheirOwn) {
  constexpr int kThreads = 2, kRounds = 20;
  const auto program = [](torch::Device device, int thread) {
    torch::Generator generator = MakeGenerator(device, 100 + thread);
    std::vector<Tensor> results;
    for (int round = 0; round < kRounds; ++round) {
      for (const Tensor& each : Draw(device, generator)) {
        results.push_back(each);
      }
      if (round == kRounds / 2) {
        // Repeats the draws from this state.
        torch::Generator copy = generator.clone();
        generator.set_state(copy.get_state());
      }
    }
    return results;
  };
  std::vector<std::vector<Tensor>> remote(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] { remote[t] = program(Device(0), t); });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < kThreads; ++t) {
    const std::vector<Tensor> local = program(torch::kCPU, t);
    ASSERT_EQ(remote[t].size(), local.size());
    for (size_t i = 0; i < local.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectEqual(remote[t][i], local[i]);
    }
  }
}

// The order of draws between the threads is undefined, but every draw happens
// once: the threads together draw the numbers that a single thread would draw.
TEST_F(GeneratorProgramsTest, ThreadsShareTheDefaultGenerator) {
  constexpr int kThreads = 4, kRounds = 50;
  const auto draw = [](torch::Device device) {
    // Draws 64-bit numbers.
    return torch::randint(std::numeric_limits<int64_t>::max(), {3},
                          torch::TensorOptions(device).dtype(torch::kLong));
  };
  const auto numbers = [](const Tensor& drawn) {
    const Tensor here = drawn.cpu();
    return std::vector<int64_t>(here.const_data_ptr<int64_t>(),
                                here.const_data_ptr<int64_t>() + here.numel());
  };
  torch::manual_seed(12);
  std::vector<std::vector<Tensor>> drawn(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < kRounds; ++round) {
        drawn[t].push_back(draw(Device(0)));
        // Draws of other lanes also meet reads.
        if (round % 20 == t) (void)DefaultGenerator(Device(0)).get_state();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Tensor state = DefaultGenerator(Device(0)).get_state();
  std::multiset<std::vector<int64_t>> remote, local;
  for (const std::vector<Tensor>& each : drawn) {
    for (const Tensor& tensor : each) remote.insert(numbers(tensor));
  }
  torch::manual_seed(12);
  for (int i = 0; i < kThreads * kRounds; ++i) {
    local.insert(numbers(draw(torch::kCPU)));
  }
  EXPECT_EQ(remote, local);
  EXPECT_TRUE(torch::equal(state, DefaultGenerator(torch::kCPU).get_state()));
}

}  // namespace
}  // namespace djinn
