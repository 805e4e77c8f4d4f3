// Tests convolutions in every layout, and matrix products. The results must
// have the CPU's bits and strides.
#include "tests/e2e/same_program.h"

namespace djinn {
namespace {

using torch::Tensor;

using KernelProgramsTest = ProgramTest;

// Returns the tensor in the layouts that models use: contiguous, channels last,
// and as a slice of a larger tensor.
std::vector<Tensor> Layouts(const Tensor& x) {
  std::vector<Tensor> layouts = {x};
  if (x.dim() == 4) {
    layouts.push_back(x.contiguous(torch::MemoryFormat::ChannelsLast));
  } else if (x.dim() == 5) {
    layouts.push_back(x.contiguous(torch::MemoryFormat::ChannelsLast3d));
  }
  layouts.push_back(torch::cat({x, x}, -1).slice(-1, 0, x.size(-1)));
  layouts.push_back(x.transpose(-1, -2).contiguous().transpose(-1, -2));
  return layouts;
}

// Returns the same values in the same layout on the device.
Tensor There(const Tensor& tensor, torch::Device device) {
  const Tensor there = torch::empty_strided(tensor.sizes(), tensor.strides(),
                                            torch::TensorOptions(device));
  return there.copy_(tensor);
}

// Returns results and gradients of `operation` for every layout of its first
// input. The layouts are created on the CPU, and the upload keeps them.
template <typename Operation>
std::vector<Tensor> Differentiated(torch::Device device,
                                   const std::vector<Tensor>& inputs,
                                   Operation operation) {
  std::vector<Tensor> results;
  for (const Tensor& first : Layouts(inputs[0])) {
    std::vector<Tensor> leaves;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Tensor& input = i == 0 ? first : inputs[i];
      leaves.push_back(There(input, device).requires_grad_());
    }
    {
      torch::NoGradGuard no_grad;
      results.push_back(operation(leaves));
    }
    const Tensor result = operation(leaves);
    results.push_back(result.detach());
    result.square().sum().backward();
    for (const Tensor& leaf : leaves) results.push_back(leaf.grad());
  }
  return results;
}

TEST_F(KernelProgramsTest, Convolutions) {
  ExpectSame([](torch::Device device) {
    std::vector<Tensor> results;
    const auto add = [&](std::vector<Tensor> more) {
      results.insert(results.end(), more.begin(), more.end());
    };
    for (const int64_t batch : {1, 3}) {
      for (const int64_t kernel : {1, 3}) {
        add(Differentiated(
            device,
            {torch::randn({batch, 4, 12}), torch::randn({6, 2, kernel})},
            [](const std::vector<Tensor>& t) {
              return torch::conv1d(t[0], t[1], {}, 1, 1, 1, 2);
            }));
        add(Differentiated(
            device,
            {torch::randn({batch, 4, 9, 9}),
             torch::randn({6, 4, kernel, kernel}), torch::randn({6})},
            [](const std::vector<Tensor>& t) {
              return torch::conv2d(t[0], t[1], t[2], 2, 1);
            }));
        // A depthwise convolution.
        add(Differentiated(
            device,
            {torch::randn({batch, 4, 9, 9}), torch::randn({8, 1, kernel, 3})},
            [](const std::vector<Tensor>& t) {
              return torch::conv2d(t[0], t[1], {}, 1, 1, 2, 4);
            }));
        add(Differentiated(device,
                           {torch::randn({batch, 2, 5, 6, 7}),
                            torch::randn({4, 2, kernel, kernel, kernel})},
                           [](const std::vector<Tensor>& t) {
                             return torch::conv3d(t[0], t[1], {}, 1, 1);
                           }));
        add(Differentiated(
            device,
            {torch::randn({batch, 4, 6, 6}),
             torch::randn({4, 3, kernel, kernel}), torch::randn({6})},
            [](const std::vector<Tensor>& t) {
              return torch::conv_transpose2d(t[0], t[1], t[2], 2, 0, 1, 2);
            }));
        add(Differentiated(
            device, {torch::randn({batch, 4, 8}), torch::randn({4, 6, kernel})},
            [](const std::vector<Tensor>& t) {
              return torch::conv_transpose1d(t[0], t[1], {}, 2);
            }));
        add(Differentiated(device,
                           {torch::randn({batch, 2, 4, 4, 4}),
                            torch::randn({2, 3, kernel, kernel, kernel})},
                           [](const std::vector<Tensor>& t) {
                             return torch::conv_transpose3d(t[0], t[1], {}, 2);
                           }));
      }
    }
    return results;
  });
  // Each of two forward calls and one backward call is synchronous, because the
  // worker's threads decide the layout of a channels-last 3-dimensional
  // convolution with kernels of size 1.
  EXPECT_EQ(GetStatistics().synchronous_calls, 3u);
}

// The CPU's products accept operands with a lazy conjugation.
TEST_F(KernelProgramsTest, ProductsOfWhatIsStillToBeConjugated) {
  ExpectSame([](torch::Device device) {
    const torch::NoGradGuard no_gradient;
    const Tensor real = torch::sin(torch::arange(240).to(torch::kFloat));
    const Tensor z = torch::view_as_complex(real.view({12, 10, 2})).to(device);
    return std::vector<Tensor>{torch::matmul(z.mH(), z),
                               torch::matmul(z.conj(), z.t()),
                               torch::nn::functional::linear(z, z.conj()),
                               torch::einsum("ij,ik->jk", {z.conj(), z})};
  });
}

// CPU kernels leave the conjugation of these results to their readers.
TEST_F(KernelProgramsTest, ResultsStillToBeConjugated) {
  ExpectSame([](torch::Device device) {
    const Tensor real = torch::arange(1, 7).to(torch::kFloat).view({3, 2});
    const Tensor z = torch::view_as_complex(real).to(device);
    const Tensor w = (z * z).conj();
    std::vector<Tensor> results;
    for (const Tensor& left : {z, w, z.conj()}) {
      for (const Tensor& right : {z, w}) {
        results.push_back(torch::dot(left, right).resolve_conj());
        results.push_back(torch::vdot(left, right).resolve_conj());
      }
    }
    const Tensor matrix = torch::diag(z) + w.unsqueeze(0);
    const auto [factors, pivots] = torch::linalg_lu_factor(matrix);
    Tensor out = torch::empty({4, 3}, matrix.options());
    const Tensor right = torch::view_as_complex(
        torch::arange(24).to(torch::kFloat).view({4, 3, 2}).to(device));
    torch::linalg_lu_solve_out(out, factors, pivots, right, /*left=*/false);
    results.push_back(out.clone());
    results.push_back(
        torch::linalg_lu_solve(factors, pivots, right, /*left=*/false).clone());
    return results;
  });
}

// The CPU multiplies differently with a matrix that requires a gradient, even
// where no gradient is recorded.
TEST_F(KernelProgramsTest, ProductsWithParametersWithoutAGradient) {
  for (const bool inference : {false, true}) {
    for (const bool parameter : {false, true}) {
      ExpectSame([&](torch::Device device) {
        const Tensor weight =
            torch::randn({5, 4}).to(device).requires_grad_(parameter);
        const Tensor bias = torch::randn({5}).to(device);
        std::vector<Tensor> inputs = Layouts(torch::randn({3, 6, 4}));
        for (Tensor& input : inputs) input = There(input, device);
        const torch::NoGradGuard no_grad;
        const c10::InferenceMode mode(inference);
        std::vector<Tensor> results;
        for (const Tensor& x : inputs) {
          results.push_back(torch::linear(x, weight));
          results.push_back(torch::linear(x, weight, bias));
          results.push_back(torch::matmul(x, weight.t()));
          results.push_back(torch::matmul(weight, x.transpose(1, 2)));
          results.push_back(torch::matmul(x, weight[0]));
          results.push_back(torch::matmul(weight[0], x.transpose(1, 2)));
        }
        return results;
      });
    }
  }
  EXPECT_EQ(GetStatistics().synchronous_calls, 0u);
}

}  // namespace
}  // namespace djinn
