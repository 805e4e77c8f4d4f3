// Tests recurrent networks and cells in evaluation and in training. Results,
// gradients and strides must equal the CPU's.
#include <tuple>
#include <utility>
#include <vector>

#include "tests/e2e/same_program.h"

namespace djinn {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

using RecurrentProgramsTest = ProgramTest;

constexpr int64_t kSteps = 5, kBatch = 3, kInput = 4, kHidden = 6;

void Append(const Tensor& tensor, std::vector<Tensor>* to) {
  to->push_back(tensor);
}
void Append(const std::tuple<Tensor, Tensor>& pair, std::vector<Tensor>* to) {
  to->push_back(std::get<0>(pair));
  to->push_back(std::get<1>(pair));
}
template <typename State>
void Append(const std::tuple<Tensor, State>& result, std::vector<Tensor>* to) {
  Append(std::get<0>(result), to);
  Append(std::get<1>(result), to);
}

// Runs `run` in evaluation and in training, each without and with a gradient.
// Returns the results, and the gradients of the input and of every parameter.
template <typename Module, typename Run>
std::vector<Tensor> UsedAndTrained(torch::Device device, Module module,
                                   Tensor input, Run run) {
  module->to(device);
  input = input.to(device).requires_grad_();
  std::vector<Tensor> results;
  // Input and parameters were drawn on the CPU.
  torch::manual_seed(2);
  for (const bool train : {false, true}) {
    module->train(train);
    // A product rounds differently if one of its matrices could have a
    // gradient, which a worker does not see.
    const auto require = [&](bool gradient) {
      for (Tensor& each : module->parameters()) each.requires_grad_(gradient);
    };
    require(false);
    Append(run(module, input.detach()), &results);
    require(true);
    std::vector<Tensor> returned;
    Append(run(module, input), &returned);
    Tensor loss = torch::zeros({}, returned[0].options());
    for (const Tensor& each : returned) {
      results.push_back(each.detach());
      loss = loss + each.square().sum();
    }
    loss.backward();
    results.push_back(input.grad().clone());
    input.mutable_grad().zero_();
    for (const Tensor& parameter : module->parameters()) {
      results.push_back(parameter.grad().clone());
    }
    module->zero_grad();
  }
  return results;
}

template <typename Make>
void ExpectSameNetwork(Make make, torch::Dtype dtype = torch::kFloat) {
  ExpectSame([&](torch::Device device) {
    auto network = make();
    network->to(dtype);
    return UsedAndTrained(
        device, network, torch::randn({kSteps, kBatch, kInput}, dtype),
        [](auto module, const Tensor& x) { return module->forward(x); });
  });
  EXPECT_EQ(GetStatistics().synchronous_calls, 0u);
}

// Tests the network in all its forms.
template <typename Network, typename Options>
void ExpectSameInAllForms(Options options, torch::Dtype dtype) {
  const auto expect = [&](const Options& form) {
    ExpectSameNetwork([&] { return Network(form); }, dtype);
  };
  expect(options);
  expect(Options(options).bias(false));
  expect(Options(options).batch_first(true));
  expect(Options(options).num_layers(2).dropout(0.3));
  expect(Options(options).num_layers(2).bidirectional(true).dropout(0.3));
  expect(Options(options).bidirectional(true).batch_first(true).bias(false));
}

TEST_F(RecurrentProgramsTest, Gru) {
  for (const torch::Dtype dtype : {torch::kFloat, torch::kDouble}) {
    ExpectSameInAllForms<nn::GRU>(nn::GRUOptions(kInput, kHidden), dtype);
  }
}

TEST_F(RecurrentProgramsTest, PlainNetworks) {
  ExpectSameInAllForms<nn::RNN>(nn::RNNOptions(kInput, kHidden), torch::kFloat);
  ExpectSameInAllForms<nn::RNN>(
      nn::RNNOptions(kInput, kHidden).nonlinearity(torch::kReLU),
      torch::kDouble);
}

TEST_F(RecurrentProgramsTest, Lstm) {
  const nn::LSTMOptions options(kInput, kHidden);
  ExpectSameInAllForms<nn::LSTM>(options, torch::kDouble);
  for (const torch::Dtype dtype : {torch::kFloat, torch::kDouble}) {
    ExpectSameNetwork(
        [&] {
          return nn::LSTM(nn::LSTMOptions(options).proj_size(2).num_layers(2));
        },
        dtype);
  }
}

// The CPU runs it with oneDNN, and so does the worker without a gradient.
TEST_F(RecurrentProgramsTest, LstmWithOneDnn) {
  const auto make = [] {
    return nn::LSTM(
        nn::LSTMOptions(kInput, kHidden).num_layers(2).bidirectional(true));
  };
  ExpectSame([&](torch::Device device) {
    nn::LSTM network = make();
    network->to(device);
    torch::NoGradGuard no_grad;
    std::vector<Tensor> results;
    for (const bool train : {false, true}) {
      network->train(train);
      Append(
          network->forward(torch::randn({kSteps, kBatch, kInput}).to(device)),
          &results);
    }
    return results;
  });
  const auto train = [&](torch::Device device) {
    torch::manual_seed(1);
    nn::LSTM network = make();
    return UsedAndTrained(
        device, network, torch::randn({kSteps, kBatch, kInput}),
        [](auto module, const Tensor& x) { return module->forward(x); });
  };
  const std::vector<Tensor> local = train(torch::kCPU);
  const std::vector<Tensor> remote = train(Device(0));
  ASSERT_EQ(remote.size(), local.size());
  for (size_t i = 0; i < local.size(); ++i) {
    EXPECT_TRUE(torch::allclose(remote[i].cpu(), local[i], 1e-5, 1e-6)) << i;
  }
}

TEST_F(RecurrentProgramsTest, Cells) {
  const auto expect = [](auto make) {
    ExpectSame([&](torch::Device device) {
      return UsedAndTrained(device, make(), torch::randn({kBatch, kInput}),
                            [](auto cell, const Tensor& x) {
                              // Three steps, without and with a state.
                              return cell->forward(
                                  x, cell->forward(x, cell->forward(x)));
                            });
    });
  };
  for (const bool bias : {true, false}) {
    expect([&] {
      return nn::LSTMCell(nn::LSTMCellOptions(kInput, kHidden).bias(bias));
    });
    expect([&] {
      return nn::GRUCell(nn::GRUCellOptions(kInput, kHidden).bias(bias));
    });
    expect([&] {
      return nn::RNNCell(nn::RNNCellOptions(kInput, kHidden).bias(bias));
    });
  }
}

template <typename Make>
void ExpectSamePacked(Make make) {
  ExpectSame([&](torch::Device device) {
    return UsedAndTrained(
        device, make(), torch::randn({kSteps, kBatch, kInput}),
        [](auto module, const Tensor& x) {
          const auto packed =
              nn::utils::rnn::pack_padded_sequence(x, torch::tensor({5, 2, 2}));
          const auto [output, state] =
              module->forward_with_packed_input(packed);
          const auto [padded, lengths] =
              nn::utils::rnn::pad_packed_sequence(output);
          EXPECT_TRUE(torch::equal(lengths, torch::tensor({5, 2, 2})));
          return std::make_tuple(padded, state);
        });
  });
}

TEST_F(RecurrentProgramsTest, PackedSequences) {
  for (const bool both : {false, true}) {
    ExpectSamePacked([&] {
      return nn::LSTM(
          nn::LSTMOptions(kInput, kHidden).num_layers(2).bidirectional(both));
    });
    ExpectSamePacked([&] {
      return nn::GRU(nn::GRUOptions(kInput, kHidden)
                         .num_layers(2)
                         .dropout(0.3)
                         .bidirectional(both));
    });
    ExpectSamePacked([&] {
      return nn::RNN(nn::RNNOptions(kInput, kHidden).bidirectional(both));
    });
  }
}

TEST_F(RecurrentProgramsTest, MistakesRaiseAtTheCall) {
  const torch::Device device = Device(0);
  nn::GRU network(nn::GRUOptions(kInput, kHidden));
  network->to(device);
  const Tensor x = torch::randn({kSteps, kBatch, kInput}).to(device);
  const auto hidden = [&](at::IntArrayRef sizes) {
    return torch::randn(sizes).to(device);
  };
  const auto call = [&](const Tensor& input, const Tensor& state) {
    return torch::gru(input, state, network->all_weights(), true, 1, 0, false,
                      false, false);
  };
  for (const bool grad : {false, true}) {
    torch::AutoGradMode mode(grad);
    EXPECT_THROW(call(x[0], hidden({1, kBatch, kHidden})), c10::Error);
    EXPECT_THROW(call(x, hidden({2, kBatch, kHidden})), c10::Error);
    EXPECT_THROW(call(x, hidden({1, kBatch + 1, kHidden})), c10::Error);
    EXPECT_THROW(
        torch::gru_cell(x[0], hidden({kBatch + 1, kHidden}),
                        network->all_weights()[0], network->all_weights()[1]),
        c10::Error);
  }
}

}  // namespace
}  // namespace djinn
