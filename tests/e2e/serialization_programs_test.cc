// Tests saving tensors that are on a worker, and loading them on the CPU and on
// the worker.
#include <sstream>

#include "tests/e2e/same_program.h"

namespace djinn {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

class SerializationProgramsTest : public ProgramTest {};

template <typename Value>
std::string Saved(const Value& value) {
  std::ostringstream out;
  torch::save(value, out);
  return out.str();
}

nn::Sequential Net() {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(3, 4, 3)),
                        nn::BatchNorm2d(4), nn::Flatten(),
                        nn::Linear(4 * 36, 5));
}

TEST_F(SerializationProgramsTest, TensorsAreSavedWithTheirBytes) {
  const Tensor x = torch::randn({4, 5});
  const Tensor remote = x.to(Device(0));
  std::istringstream whole(Saved(remote)),
      part(Saved(remote.t().slice(0, 1, 3)));
  Tensor loaded;
  torch::load(loaded, whole);
  EXPECT_EQ(loaded.device(), Device(0));
  ExpectEqual(loaded, x);
  torch::load(loaded, part, torch::Device(torch::kCPU));
  EXPECT_TRUE(loaded.is_cpu());
  EXPECT_TRUE(torch::equal(loaded, x.t().slice(0, 1, 3)));
}

TEST_F(SerializationProgramsTest, TensorsAreLoadedToADevice) {
  const std::vector<Tensor> tensors = {
      torch::randn({4, 5}), torch::arange(7),
      torch::randn({2, 3, 4, 4}).contiguous(torch::MemoryFormat::ChannelsLast)};
  const std::string saved = Saved(tensors);
  for (const int device : {0, 1}) {
    std::istringstream in(saved);
    std::vector<Tensor> loaded;
    torch::load(loaded, in, Device(device));
    ASSERT_EQ(loaded.size(), tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_EQ(loaded[i].device(), Device(device));
      ExpectEqual(loaded[i], tensors[i]);
    }
  }
}

TEST_F(SerializationProgramsTest, ModulesGoToAndFro) {
  torch::manual_seed(3);
  nn::Sequential net = Net();
  const Tensor x = torch::randn({2, 3, 8, 8});
  net->to(Device(0));
  // Changes the running statistics from their initial values.
  net->forward(x.to(Device(0)));
  net->eval();
  const Tensor expected = net->forward(x.to(Device(0))).detach().cpu();
  const std::string saved = Saved(net);
  {
    nn::Sequential here = Net();
    std::istringstream in(saved);
    torch::load(here, in, torch::Device(torch::kCPU));
    here->eval();
    EXPECT_EQ(here->parameters()[0].device(), torch::Device(torch::kCPU));
    EXPECT_TRUE(torch::equal(here->forward(x), expected));
  }
  {
    nn::Sequential there = Net();
    there->to(Device(1));
    std::istringstream in(saved);
    torch::load(there, in, Device(1));
    there->eval();
    EXPECT_EQ(there->parameters()[0].device(), Device(1));
    EXPECT_TRUE(torch::equal(there->forward(x.to(Device(1))).cpu(), expected));
  }
}

TEST_F(SerializationProgramsTest, AnOptimizerGoesOnWhereItWas) {
  ExpectSame([](torch::Device device) {
    const Tensor x = torch::randn({6, 8}), y = torch::randn({6, 2});
    nn::Linear first(8, 2);
    first->to(device);
    const auto train = [&](nn::Linear& net, torch::optim::Adam& adam,
                           int steps) {
      Tensor loss;
      for (int i = 0; i < steps; ++i) {
        adam.zero_grad();
        loss = torch::mse_loss(net(x.to(device)), y.to(device));
        loss.backward();
        adam.step();
      }
      return loss.detach();
    };
    torch::optim::Adam adam(first->parameters(), 0.01);
    train(first, adam, 3);
    nn::Linear second(8, 2);
    second->to(device);
    torch::optim::Adam again(second->parameters(), 0.01);
    std::istringstream module(Saved(first)), state(Saved(adam));
    torch::load(second, module, device);
    torch::load(again, state, device);
    std::vector<Tensor> results = {train(first, adam, 3),
                                   train(second, again, 3), first->weight,
                                   second->weight};
    EXPECT_TRUE(torch::equal(first->weight.cpu(), second->weight.cpu()));
    for (Tensor& result : results) result = result.detach();
    return results;
  });
}

}  // namespace
}  // namespace djinn
