// Tests operators of other libraries on remote tensors: one library that the
// program and its workers load, and operators that only the program has.
#include <dlfcn.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "djinn/djinn.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

// Operators that no worker has.
torch::Tensor Twice(const torch::Tensor& x) { return x * 2; }
torch::Tensor& Double(torch::Tensor& x) { return x.mul_(2); }

TORCH_LIBRARY(absent, m) {
  m.def("twice(Tensor x) -> Tensor");
  m.def("double_(Tensor(a!) x) -> Tensor(a!)");
  m.def("name_of(Tensor x) -> str");
}
TORCH_LIBRARY_IMPL(absent, CPU, m) {
  m.impl("twice", Twice);
  m.impl("double_", Double);
}
TORCH_LIBRARY_IMPL(absent, Meta, m) {
  m.impl("twice", [](const torch::Tensor& x) { return torch::empty_like(x); });
}

}  // namespace

namespace djinn {
namespace {

using testing::HasSubstr;
using torch::Tensor;

std::string LibraryPath() {
  return std::filesystem::absolute(
      "tests/custom_operators/libexample_operators.so");
}

class CustomOperatorsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_NE(dlopen(LibraryPath().c_str(), RTLD_NOW), nullptr) << dlerror();
  }
  void SetUp() override {
    torch::set_num_threads(1);
    auto started = EmbeddedCluster::Start(
        {.worker_threads = 1, .operator_libraries = {LibraryPath()}});
    ASSERT_TRUE(started.ok()) << started.status();
    cluster_ = *std::move(started);
    ASSERT_TRUE(Connect(cluster_->connect_options()).ok());
  }
  void TearDown() override { EXPECT_TRUE(Close().ok()); }

 private:
  std::unique_ptr<EmbeddedCluster> cluster_;
};

template <typename Result, typename... Arguments>
Result Call(const char* name, Arguments... arguments) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(name, "")
      .typed<Result(Arguments...)>()
      .call(arguments...);
}

Tensor Bend(const Tensor& x, double scale) {
  return Call<Tensor, const Tensor&, double>("example::bend", x, scale);
}

void ExpectEqual(const Tensor& remote, const Tensor& local) {
  EXPECT_EQ(remote.device(), Device(0));
  EXPECT_EQ(remote.strides(), local.strides());
  EXPECT_TRUE(torch::equal(remote.cpu(), local));
}

TEST_F(CustomOperatorsTest, ForwardAndBackward) {
  const auto program = [](torch::Device device) {
    torch::manual_seed(1);
    Tensor x = torch::randn({3, 4}).to(device).requires_grad_();
    Tensor loss = torch::zeros({}, device);
    for (int step = 0; step < 3; ++step) {
      loss = loss + (Bend(x.t(), 0.5 + step) * x.t()).sum();
    }
    loss.backward();
    return std::vector<Tensor>{loss.detach(), x.grad(),
                               Bend(x.detach().t(), 0.5)};
  };
  const std::vector<Tensor> local = program(torch::kCPU);
  const std::vector<Tensor> remote = program(Device(0));
  for (size_t i = 0; i < local.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectEqual(remote[i], local[i]);
  }
  // The shapes come from the operators' meta kernels.
  EXPECT_EQ(SynchronousCalls().size(), 0u);
}

TEST_F(CustomOperatorsTest, InPlaceDataDependentAndLists) {
  torch::manual_seed(1);
  const Tensor x = torch::randn({5, 4});
  Tensor local = x.clone(), remote = x.to(Device(0));
  for (const double limit : {1.0, 0.5}) {
    Tensor row = local[1], remote_row = remote[1];
    Call<Tensor&, Tensor&, double>("example::clip_", row, limit);
    Call<Tensor&, Tensor&, double>("example::clip_", remote_row, limit);
    ExpectEqual(remote, local);
  }
  ExpectEqual(Call<Tensor, const Tensor&>("example::positives", remote),
              Call<Tensor, const Tensor&>("example::positives", local));
  EXPECT_EQ(SynchronousCalls().count("example::positives"), 1u);
  for (int time = 0; time < 2; ++time) {
    const auto halves =
        Call<std::vector<Tensor>, const Tensor&>("example::halves", remote);
    ASSERT_EQ(halves.size(), 2u);
    ExpectEqual(halves[0], local.slice(0, 0, 2));
    ExpectEqual(halves[1], local.slice(0, 2));
  }
}

TEST_F(CustomOperatorsTest, MistakesRaiseAtTheCall) {
  const Tensor whole = torch::ones({2}, torch::kLong).to(Device(0));
  try {
    Bend(whole, 1);
    ADD_FAILURE() << "accepted";
  } catch (const c10::Error& error) {
    EXPECT_STREQ(error.what_without_backtrace(),
                 "bend takes float32, not Long");
  }
}

TEST_F(CustomOperatorsTest, OperatorsThatTheWorkerLacksAreRefusedByName) {
  Tensor x = torch::ones({3}, Device(0));
  const Tensor before = x + 1;
  const auto refused = [](const char* name, auto call) {
    // The refusal is the same each time.
    for (int time = 0; time < 2; ++time) {
      try {
        call();
        ADD_FAILURE() << "accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.reason(), "OPERATOR_UNKNOWN");
        EXPECT_THAT(error.what(), HasSubstr(name));
        EXPECT_THAT(error.what(), HasSubstr("libexample_operators.so"));
      }
    }
  };
  refused("absent::twice",
          [&] { Call<Tensor, const Tensor&>("absent::twice", x); });
  // Calls that were issued before the refused ones are not lost.
  ExpectEqual(before, torch::full({3}, 2.0f));
  ExpectEqual(Bend(before, 0), torch::full({3}, 2.0f));
  refused("absent::double_", [&] {
    Tensor y = x.clone();
    Call<Tensor&, Tensor&>("absent::double_", y);
  });
  ExpectEqual(before, torch::full({3}, 2.0f));
}

TEST_F(CustomOperatorsTest, OperatorWithoutTensorResultsIsRefused) {
  const Tensor x = torch::ones({3}, Device(0));
  try {
    Call<std::string, const Tensor&>("absent::name_of", x);
    ADD_FAILURE() << "accepted";
  } catch (const c10::NotImplementedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("absent::name_of is refused"));
  }
}

TEST(OperatorLibrariesTest, BadOnesKeepTheWorkerFromStarting) {
  const std::string folder = std::getenv("TEST_TMPDIR");
  for (const std::string& path :
       {folder + "/missing.so", folder, std::string("/etc/hostname")}) {
    const auto started = EmbeddedCluster::Start({.operator_libraries = {path}});
    ASSERT_FALSE(started.ok()) << path;
    EXPECT_THAT(std::string(started.status().message()), HasSubstr(path));
  }
}

}  // namespace
}  // namespace djinn
