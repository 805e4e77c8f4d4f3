// Tests TorchScript modules on remote devices. Each module is defined here,
// saved and loaded, and is called often enough that the profiling executor
// specialises and fuses it.
#include <torch/script.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/same_program.h"

namespace djinn {
namespace {

using torch::Tensor;
using torch::jit::Module;

class TorchscriptProgramsTest : public ProgramTest {};

// The first calls profile; after two the optimised graph runs.
constexpr int kCalls = 5;

void AddParameter(Module* module, const std::string& name,
                  const Tensor& value) {
  module->register_parameter(name, value.detach().requires_grad_(),
                             /*is_buffer=*/false);
}

void AddLinear(Module* module, const std::string& name, int64_t inputs,
               int64_t outputs) {
  AddParameter(module, name, torch::randn({outputs, inputs}) * 0.2);
  AddParameter(module, name + "_bias", torch::randn({outputs}));
}

Module Mlp() {
  Module module("Mlp");
  AddLinear(&module, "first", 6, 8);
  AddLinear(&module, "second", 8, 3);
  // A chain of elementwise steps, which fusers look for.
  module.define(R"(
    def forward(self, x):
        y = torch.linear(x, self.first, self.first_bias)
        y = torch.tanh(y) * torch.sigmoid(y) + y * 0.5
        if bool(y.sum() > 1e6):
            y = y * 0.0
        return torch.softmax(torch.linear(y, self.second, self.second_bias), -1)
  )");
  return module;
}

Module Cnn() {
  Module module("Cnn");
  AddParameter(&module, "kernel", torch::randn({4, 2, 3, 3}));
  AddParameter(&module, "scale", torch::ones({4}));
  AddParameter(&module, "shift", torch::zeros({4}));
  module.register_buffer("mean", torch::randn({4}));
  module.register_buffer("variance", torch::rand({4}) + 0.5);
  module.define(R"(
    def forward(self, x):
        y = torch.conv2d(x, self.kernel, None, [1, 1], [1, 1])
        y = torch.batch_norm(y, self.scale, self.shift, self.mean,
                             self.variance, False, 0.1, 1e-5, True)
        y = torch.relu(y)
        y, places = torch.max_pool2d_with_indices(y, [2, 2], [2, 2])
        return torch.flatten(y, 1)
  )");
  return module;
}

// A loop whose length depends on the input.
Module Lstm() {
  Module module("Lstm");
  AddLinear(&module, "inputs", 5, 16);
  AddLinear(&module, "hidden", 4, 16);
  module.define(R"(
    def forward(self, x):
        h = torch.zeros([x.size(1), 4], dtype=x.dtype, device=x.device)
        c = torch.zeros_like(h)
        outputs = []
        for t in range(x.size(0)):
            gates = torch.linear(x[t], self.inputs, self.inputs_bias) + \
                    torch.linear(h, self.hidden, self.hidden_bias)
            i, f, g, o = torch.chunk(gates, 4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs += [h]
        return torch.stack(outputs)
  )");
  return module;
}

Module SavedAndLoaded(const Module& module, torch::Device device) {
  std::stringstream file;
  module.save(file);
  return torch::jit::load(file, device);
}

std::vector<Tensor> Outputs(Module module, const Tensor& input) {
  std::vector<Tensor> outputs;
  for (int call = 0; call < kCalls; ++call) {
    outputs.push_back(module.forward({input + call}).toTensor());
  }
  return outputs;
}

struct Case {
  const char* name;
  Module (*make)();
  std::vector<int64_t> input;
};

const std::vector<Case>& Cases() {
  static const auto* const cases = new std::vector<Case>{
      {"mlp", &Mlp, {3, 6}},
      {"cnn", &Cnn, {2, 2, 8, 8}},
      {"lstm", &Lstm, {7, 3, 5}},
  };
  return *cases;
}

TEST_F(TorchscriptProgramsTest, ModulesMovedToADevice) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    ExpectSame([&](torch::Device device) {
      const torch::NoGradGuard no_grad;
      Module module = c.make();
      const Tensor input = torch::randn(c.input);
      module.eval();
      module.to(device);
      return Outputs(std::move(module), input.to(device));
    });
  }
}

TEST_F(TorchscriptProgramsTest, ModulesLoadedToADevice) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    ExpectSame([&](torch::Device device) {
      const torch::NoGradGuard no_grad;
      Module module = SavedAndLoaded(c.make(), device);
      return Outputs(std::move(module), torch::randn(c.input).to(device));
    });
  }
}

TEST_F(TorchscriptProgramsTest, FrozenAndOptimisedModules) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    ExpectSame([&](torch::Device device) {
      const torch::NoGradGuard no_grad;
      Module module = c.make();
      const Tensor input = torch::randn(c.input).to(device);
      module.eval();
      module.to(device);
      return Outputs(torch::jit::freeze(module), input);
    });
  }
}

// The executor differentiates with its own formulas.
TEST_F(TorchscriptProgramsTest, GradientsOfScriptedModules) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    ExpectSame([&](torch::Device device) {
      Module module = c.make();
      module.to(device);
      const Tensor input = torch::randn(c.input).to(device);
      std::vector<Tensor> results;
      for (int call = 0; call < kCalls; ++call) {
        const Tensor loss =
            module.forward({input + call}).toTensor().square().sum();
        loss.backward();
        results.push_back(loss.detach());
      }
      for (const Tensor& parameter : module.parameters()) {
        results.push_back(parameter.grad().clone());
      }
      return results;
    });
  }
}

TEST_F(TorchscriptProgramsTest, ErrorsSayWhereInTheScript) {
  Module module = Mlp();
  module.to(Device(0));
  try {
    module.forward({torch::randn({3, 7}, Device(0))});
    ADD_FAILURE() << "accepted";
  } catch (const std::exception& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("torch.linear(x, self.first"), std::string::npos)
        << text;
    EXPECT_NE(text.find("mat1 and mat2 shapes cannot be multiplied"),
              std::string::npos)
        << text;
  }
}

}  // namespace
}  // namespace djinn
