// Tests programs that use gradients beyond one backward(): the results equal
// the CPU's.
#include <thread>
#include <vector>

#include "tests/e2e/same_program.h"

namespace djinn {
namespace {

namespace nn = torch::nn;
using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::grad;
using torch::autograd::variable_list;

using AutogradProgramsTest = ProgramTest;

Tensor Leaf(at::IntArrayRef sizes, torch::Device device) {
  return torch::randn(sizes).to(device).requires_grad_();
}

TEST_F(AutogradProgramsTest, GradientsOfGradients) {
  ExpectSame([](torch::Device device) {
    const Tensor x = Leaf({4, 3}, device), w = Leaf({5, 3}, device);
    const Tensor y = (torch::linear(x, w).tanh() * x.sum(1, true)).pow(3).sum();
    std::vector<Tensor> results = {y.detach()};
    std::vector<Tensor> gradients = {y};
    // Computes gradients up to the third order.
    for (int order = 1; order <= 3; ++order) {
      Tensor sum = gradients[0].square().sum();
      gradients = grad({sum}, {x, w}, {}, /*retain_graph=*/true,
                       /*create_graph=*/true);
      for (const Tensor& each : gradients) results.push_back(each.detach());
    }
    return results;
  });
}

TEST_F(AutogradProgramsTest, GradientsOfGradientsThroughKernels) {
  ExpectSame([](torch::Device device) {
    std::vector<Tensor> results;
    const auto penalise = [&](const Tensor& y, const variable_list& of) {
      const variable_list first = grad({y.square().sum()}, of, {}, true, true);
      Tensor penalty = torch::zeros({}, device);
      for (const Tensor& each : first) penalty = penalty + each.norm();
      for (const Tensor& each :
           grad({penalty}, of, {}, false, false, /*allow_unused=*/true)) {
        results.push_back(each);
      }
      results.push_back(penalty.detach());
    };
    const Tensor image = Leaf({2, 3, 6, 6}, device);
    const Tensor kernel = Leaf({4, 3, 3, 3}, device);
    penalise(torch::conv2d(image, kernel, {}, 1, 1).tanh(), {image, kernel});
    const Tensor x = Leaf({4, 6}, device);
    const Tensor weight = Leaf({6}, device), bias = Leaf({6}, device);
    penalise(torch::layer_norm(x, {6}, weight, bias).exp(), {x, weight, bias});
    penalise(torch::batch_norm(x, weight, bias, {}, {}, true, 0.1, 1e-5, false)
                 .sigmoid(),
             {x, weight});
    penalise(torch::softmax(x, 1) * torch::log_softmax(x, 1), {x});
    penalise(torch::gelu(x) + torch::silu(x) + torch::softplus(x), {x});
    penalise(torch::embedding(x, torch::tensor({0, 2, 2}).to(device)).pow(3),
             {x});
    penalise(x.index({torch::tensor({1, 1, 3}).to(device)}).cumsum(0).pow(3),
             {x});
    penalise(torch::matmul(x, x.t()).logsumexp(1), {x});
    penalise(torch::avg_pool2d(image, 2).pow(3), {image});
    penalise(torch::max_pool2d(image, 2).pow(3), {image});
    return results;
  });
}

TEST_F(AutogradProgramsTest, GraphsAreKeptAndUsedAgain) {
  ExpectSame([](torch::Device device) {
    const Tensor x = Leaf({4, 3}, device);
    const Tensor y = (x * 2).sin(), z = y.exp().sum();
    z.backward({}, /*retain_graph=*/true);
    const Tensor once = x.grad().clone();
    // Gradients add up.
    z.backward({}, /*retain_graph=*/true);
    y.backward(torch::ones_like(y));
    EXPECT_THROW(z.backward(), c10::Error);
    return std::vector<Tensor>{once, x.grad()};
  });
}

TEST_F(AutogradProgramsTest, Hooks) {
  ExpectSame([](torch::Device device) {
    const Tensor x = Leaf({4, 3}, device);
    const Tensor y = x * 2;
    std::vector<Tensor> seen;
    y.register_hook([&](const Tensor& gradient) { seen.push_back(gradient); });
    y.register_hook([](const Tensor& gradient) { return gradient * 3; });
    const unsigned removed =
        y.register_hook([](const Tensor& gradient) { return gradient * 100; });
    y.remove_hook(removed);
    x.register_hook([](const Tensor& gradient) {
      // The hook clips the gradient and reads no value.
      return gradient.clamp(-1, 1);
    });
    y.retain_grad();
    (y * y.detach().cos()).sum().backward();
    return std::vector<Tensor>{seen[0], y.grad(), x.grad()};
  });
}

TEST_F(AutogradProgramsTest, HooksReadValues) {
  ExpectSame([](torch::Device device) {
    const Tensor x = Leaf({4, 3}, device);
    double norm = 0;
    x.register_hook([&](const Tensor& gradient) {
      norm = gradient.norm().item<double>();
      return norm > 1 ? gradient / norm : gradient;
    });
    x.pow(3).sum().backward();
    EXPECT_GT(norm, 0);
    return std::vector<Tensor>{x.grad(), torch::full({}, norm, device)};
  });
}

// Keeps no intermediates: the backward pass computes them a second time, with
// the same draws.
class Checkpointed : public torch::autograd::Function<Checkpointed> {
 public:
  static Tensor Inside(const Tensor& x, const Tensor& w) {
    return torch::dropout(torch::linear(x, w).relu(), 0.4, true).tanh();
  }

  static Tensor forward(AutogradContext* context, const Tensor& x,
                        const Tensor& w) {
    context->save_for_backward({x, w});
    const at::Generator& generator =
        at::globalContext().defaultGenerator(x.device());
    context->saved_data["state"] = generator.get_state();
    return Inside(x, w);
  }

  static variable_list backward(AutogradContext* context,
                                variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor x = saved[0].detach().requires_grad_();
    const Tensor w = saved[1].detach().requires_grad_();
    at::Generator generator = at::globalContext().defaultGenerator(x.device());
    const Tensor now = generator.get_state();
    generator.set_state(context->saved_data["state"].toTensor());
    torch::AutoGradMode with_gradient(true);
    const Tensor again = Inside(x, w);
    generator.set_state(now);
    return grad({again}, {x, w}, gradients);
  }
};

TEST_F(AutogradProgramsTest, Recomputation) {
  ExpectSame([](torch::Device device) {
    const Tensor x = Leaf({4, 6}, device);
    const Tensor w = Leaf({6, 6}, device), v = Leaf({6, 6}, device);
    // The leaves were drawn on the CPU.
    torch::manual_seed(2);
    const Tensor y = Checkpointed::apply(Checkpointed::apply(x, w), v);
    const Tensor after = torch::dropout(y, 0.5, true);
    after.square().sum().backward();
    return std::vector<Tensor>{after.detach(), x.grad(), w.grad(), v.grad()};
  });
}

// A straight-through estimator with its own gradient formula, which uses saved
// values.
class Rounded : public torch::autograd::Function<Rounded> {
 public:
  static variable_list forward(AutogradContext* context, const Tensor& x,
                               double scale) {
    context->saved_data["scale"] = scale;
    Tensor rounded = (x * scale).round() / scale;
    context->save_for_backward({x, rounded});
    context->mark_non_differentiable({});
    return {rounded, x.abs().amax()};
  }

  static variable_list backward(AutogradContext* context,
                                variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const double scale = context->saved_data["scale"].toDouble();
    const Tensor error = (saved[0] - saved[1]) * scale;
    return {gradients[0] * (1 - error.abs()) + gradients[1], Tensor()};
  }
};

TEST_F(AutogradProgramsTest, OwnFunctions) {
  ExpectSame([](torch::Device device) {
    const Tensor x = Leaf({4, 6}, device);
    const variable_list results = Rounded::apply(x, 4.0);
    (results[0].pow(2).sum() * results[1]).backward();
    return std::vector<Tensor>{results[0].detach(), results[1].detach(),
                               x.grad()};
  });
}

TEST_F(AutogradProgramsTest, InPlaceAndViews) {
  ExpectSame([](torch::Device device) {
    const Tensor x = Leaf({4, 6}, device);
    Tensor y = x * 1;
    y.select(0, 1).mul_(3);
    y.slice(1, 2, 4).add_(x.slice(1, 0, 2).exp());
    y.index_put_({torch::tensor({0, 2}).to(device)}, x[3]);
    y.masked_fill_(x > 1, 0.5);
    const Tensor z = y.view({2, 12}).t().sigmoid_();
    z.sum().backward();
    // The saved value has changed since.
    const Tensor s = Leaf({3}, device);
    Tensor saved = s.exp();
    const Tensor late = saved.sum();
    saved.add_(1);
    EXPECT_THROW(late.backward(), c10::Error);
    EXPECT_THROW(x.add_(1), c10::Error);
    return std::vector<Tensor>{z.detach(), x.grad()};
  });
}

TEST_F(AutogradProgramsTest, UnusedAndPartialGradients) {
  ExpectSame([](torch::Device device) {
    const Tensor x = Leaf({3}, device), y = Leaf({3}, device);
    const std::vector<Tensor> parts = (x.exp() * 2).split(1);
    const variable_list gradients =
        grad({parts[1].sum()}, {x, y}, {}, false, false, /*allow_unused=*/true);
    EXPECT_FALSE(gradients[1].defined());
    const variable_list jacobian_row =
        grad({x.outer(y)}, {y}, {torch::eye(3).to(device)});
    return std::vector<Tensor>{gradients[0], jacobian_row[0]};
  });
}

TEST_F(AutogradProgramsTest, SeveralThreadsOfBackward) {
  ExpectSame([](torch::Device device) {
    const Tensor x = Leaf({8, 8}, device);
    std::vector<Tensor> losses;
    for (int i = 1; i <= 3; ++i) losses.push_back((x * i).sin().sum());
    variable_list gradients(3);
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back(
          [&, i] { gradients[i] = grad({losses[i]}, {x})[0]; });
    }
    for (std::thread& thread : threads) thread.join();
    return std::vector<Tensor>{gradients[0], gradients[1], gradients[2]};
  });
}

}  // namespace
}  // namespace djinn
