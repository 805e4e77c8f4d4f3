// Tests transformer modules in training and in evaluation. Results, gradients
// and strides must equal the CPU's.
#include <optional>
#include <tuple>
#include <vector>

#include "tests/e2e/same_program.h"

namespace djinn {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

using TransformerProgramsTest = ProgramTest;

constexpr int64_t kWidth = 16, kHeads = 4, kRows = 6, kBatch = 3;

// Runs the module in training and in evaluation. Returns, for each, the results
// and the gradients of the inputs and parameters; then the result without a
// gradient.
template <typename Module, typename Run>
std::vector<Tensor> TrainedAndUsed(torch::Device device, Module module,
                                   std::vector<Tensor> inputs, Run run) {
  module->to(device);
  for (Tensor& input : inputs) {
    input = input.to(device);
    if (input.is_floating_point()) input.requires_grad_();
  }
  std::vector<Tensor> results;
  // Inputs and parameters were drawn on the CPU.
  torch::manual_seed(2);
  for (const bool train : {true, false}) {
    module->train(train);
    const Tensor result = run(module, inputs);
    result.square().sum().backward();
    results.push_back(result.detach());
    for (const Tensor& input : inputs) {
      if (input.requires_grad()) results.push_back(input.grad().clone());
    }
    for (const Tensor& parameter : module->parameters()) {
      if (parameter.grad().defined()) {
        results.push_back(parameter.grad().clone());
      }
    }
    module->zero_grad();
    torch::NoGradGuard no_grad;
    results.push_back(run(module, inputs));
  }
  return results;
}

Tensor CausalMask(torch::Device device) {
  return torch::ones({kRows, kRows}, device).triu(1).to(torch::kBool);
}

TEST_F(TransformerProgramsTest, MultiheadAttention) {
  ExpectSame([](torch::Device device) {
    const Tensor x = torch::randn({kRows, kBatch, kWidth});
    const Tensor y = torch::randn({kRows + 2, kBatch, kWidth});
    const nn::MultiheadAttention attention(
        nn::MultiheadAttentionOptions(kWidth, kHeads).dropout(0.2));
    return TrainedAndUsed(
        device, attention, {x, y}, [&](auto module, const auto& in) {
          Tensor padding = torch::zeros({kBatch, kRows + 2}, torch::kBool);
          padding[0].slice(0, kRows) = true;
          const auto [own, weights] = module->forward(in[0], in[0], in[0], {},
                                                      true, CausalMask(device));
          const auto [cross, more] =
              module->forward(own, in[1], in[1], padding.to(device));
          return torch::cat(
              {cross.flatten(), weights.flatten(), more.flatten()});
        });
  });
}

TEST_F(TransformerProgramsTest, KeysAndValuesOfAnotherWidth) {
  ExpectSame([](torch::Device device) {
    const nn::MultiheadAttention attention(
        nn::MultiheadAttentionOptions(kWidth, kHeads)
            .kdim(5)
            .vdim(5)
            .add_bias_kv(true)
            .add_zero_attn(true));
    return TrainedAndUsed(
        device, attention,
        {torch::randn({kRows, kBatch, kWidth}), torch::randn({4, kBatch, 5}),
         torch::randn({4, kBatch, 5})},
        [](auto module, const auto& in) {
          return std::get<0>(module->forward(in[0], in[1], in[2]));
        });
  });
}

TEST_F(TransformerProgramsTest, EncoderLayer) {
  for (const bool gelu : {false, true}) {
    ExpectSame([&](torch::Device device) {
      nn::TransformerEncoderLayerOptions options(kWidth, kHeads);
      options.dim_feedforward(24).dropout(0.1);
      if (gelu) options.activation(torch::kGELU);
      return TrainedAndUsed(device, nn::TransformerEncoderLayer(options),
                            {torch::randn({kRows, kBatch, kWidth})},
                            [&](auto module, const auto& in) {
                              return module->forward(in[0], CausalMask(device));
                            });
    });
  }
}

TEST_F(TransformerProgramsTest, DecoderLayer) {
  ExpectSame([](torch::Device device) {
    const nn::TransformerDecoderLayer layer(
        nn::TransformerDecoderLayerOptions(kWidth, kHeads)
            .dim_feedforward(24)
            .dropout(0.1));
    return TrainedAndUsed(device, layer,
                          {torch::randn({kRows, kBatch, kWidth}),
                           torch::randn({kRows - 1, kBatch, kWidth})},
                          [&](auto module, const auto& in) {
                            return module->forward(in[0], in[1],
                                                   CausalMask(device));
                          });
  });
}

TEST_F(TransformerProgramsTest, WholeTransformer) {
  ExpectSame([](torch::Device device) {
    const nn::Transformer transformer(nn::TransformerOptions(kWidth, kHeads)
                                          .num_encoder_layers(2)
                                          .num_decoder_layers(1)
                                          .dim_feedforward(24)
                                          .dropout(0.1));
    return TrainedAndUsed(device, transformer,
                          {torch::randn({kRows, kBatch, kWidth}),
                           torch::randn({kRows, kBatch, kWidth})},
                          [&](auto module, const auto& in) {
                            return module->forward(in[0], in[1], {},
                                                   CausalMask(device));
                          });
  });
}

// The calls that Python's modules make for inference.
TEST_F(TransformerProgramsTest, FusedLayers) {
  ExpectSame([](torch::Device device) {
    const auto make = [&](at::IntArrayRef sizes) {
      return torch::randn(sizes).to(device);
    };
    const Tensor x = make({kBatch, kRows, kWidth});
    const Tensor weight = make({3 * kWidth, kWidth}), bias = make({3 * kWidth});
    const Tensor out = make({kWidth, kWidth}), row = make({kWidth});
    const Tensor up = make({24, kWidth}), middle = make({24});
    const Tensor down = make({kWidth, 24});
    const Tensor padding =
        (torch::arange(kRows) >= kRows - 2).expand({kBatch, kRows}).to(device);
    std::vector<Tensor> results;
    for (const bool first : {false, true}) {
      for (const Tensor& input :
           {x, x.transpose(0, 1).contiguous().transpose(0, 1)}) {
        const auto encode = [&](const std::optional<Tensor>& mask,
                                std::optional<int64_t> type) {
          results.push_back(torch::_transformer_encoder_layer_fwd(
              input, kWidth, kHeads, weight, bias, out, row, first, first, 1e-5,
              row, row, row, row, up, middle, down, row, mask, type));
        };
        encode(std::nullopt, std::nullopt);
        encode(CausalMask(device), 0);
        encode(padding, 1);
        const auto [result, weights] = torch::_native_multi_head_attention(
            input, input, input, kWidth, kHeads, weight, bias, out, row,
            CausalMask(device), /*need_weights=*/true,
            /*average_attn_weights=*/first, 0);
        results.push_back(result);
        results.push_back(weights);
      }
    }
    return results;
  });
  EXPECT_EQ(GetStatistics().synchronous_calls, 0u);
}

}  // namespace
}  // namespace djinn
