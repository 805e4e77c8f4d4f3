// Tests training: after fifty forward, backward and optimizer steps, every
// loss, parameter, buffer and optimizer state equals the CPU's.
#include <thread>

#include "tests/e2e/same_program.h"

namespace djinn {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

constexpr int kSteps = 50;

class TrainingProgramsTest : public ProgramTest {
 protected:
  // No step waits for a worker.
  void TearDown() override {
    EXPECT_EQ(GetStatistics().synchronous_calls, 0u);
    ProgramTest::TearDown();
  }
};

// Two convolutions around a shortcut, as in a residual network.
struct BlockImpl : nn::Module {
  BlockImpl(int64_t in, int64_t out, int64_t stride)
      : first(register_module("first", nn::Conv2d(nn::Conv2dOptions(in, out, 3)
                                                      .stride(stride)
                                                      .padding(1)
                                                      .bias(false)))),
        first_norm(register_module("first_norm", nn::BatchNorm2d(out))),
        second(register_module(
            "second",
            nn::Conv2d(nn::Conv2dOptions(out, out, 3).padding(1).bias(false)))),
        second_norm(register_module("second_norm", nn::BatchNorm2d(out))) {
    if (in != out || stride != 1) {
      shortcut = register_module(
          "shortcut",
          nn::Sequential(
              nn::Conv2d(
                  nn::Conv2dOptions(in, out, 1).stride(stride).bias(false)),
              nn::BatchNorm2d(out)));
    }
  }

  Tensor forward(const Tensor& x) {
    Tensor y = torch::relu(first_norm(first(x)));
    y = second_norm(second(y));
    y += shortcut.is_empty() ? x : shortcut->forward(x);
    return y.relu_();
  }

  nn::Conv2d first;
  nn::BatchNorm2d first_norm;
  nn::Conv2d second;
  nn::BatchNorm2d second_norm;
  nn::Sequential shortcut{nullptr};
};
TORCH_MODULE(Block);

struct ResidualNetImpl : nn::Module {
  ResidualNetImpl()
      : stem(register_module(
            "stem",
            nn::Conv2d(
                nn::Conv2dOptions(3, 8, 7).stride(2).padding(3).bias(false)))),
        norm(register_module("norm", nn::BatchNorm2d(8))),
        blocks(register_module(
            "blocks",
            nn::Sequential(Block(8, 8, 1), Block(8, 16, 2), Block(16, 16, 1)))),
        head(register_module("head", nn::Linear(16, 5))) {}

  Tensor forward(Tensor x) {
    x = torch::relu(norm(stem(x)));
    x = torch::max_pool2d(x, 3, 2, 1);
    x = blocks->forward(x);
    x = torch::adaptive_avg_pool2d(x, {1, 1});
    return head(x.flatten(1));
  }

  nn::Conv2d stem;
  nn::BatchNorm2d norm;
  nn::Sequential blocks;
  nn::Linear head;
};
TORCH_MODULE(ResidualNet);

void AppendState(const nn::Module& module, std::vector<Tensor>* results) {
  for (const Tensor& parameter : module.parameters()) {
    results->push_back(parameter.detach());
    if (parameter.grad().defined()) results->push_back(parameter.grad());
  }
  for (const Tensor& buffer : module.buffers()) results->push_back(buffer);
}

std::vector<Tensor> TrainResidualNet(torch::Device device,
                                     torch::MemoryFormat format) {
  ResidualNet net;
  Tensor images = torch::randn({kSteps, 4, 3, 32, 32});
  const Tensor labels = torch::randint(0, 5, {kSteps, 4}).to(device);
  net->to(device);
  if (format == torch::MemoryFormat::ChannelsLast) {
    for (Tensor& parameter : net->parameters()) {
      if (parameter.dim() == 4) {
        parameter.set_data(parameter.detach().contiguous(format));
      }
    }
  }
  torch::optim::SGD sgd(
      net->parameters(),
      torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-4));
  std::vector<Tensor> results;
  net->eval();
  {
    torch::NoGradGuard no_grad;
    results.push_back(net(images[0].to(device).contiguous(format)));
  }
  net->train();
  for (int step = 0; step < kSteps; ++step) {
    sgd.zero_grad();
    const Tensor scores = net(images[step].to(device).contiguous(format));
    const Tensor loss =
        torch::nn::functional::cross_entropy(scores, labels[step]);
    loss.backward();
    sgd.step();
    results.push_back(loss.detach());
  }
  AppendState(*net, &results);
  net->eval();
  torch::NoGradGuard no_grad;
  results.push_back(net(images[1].to(device).contiguous(format)));
  return results;
}

TEST_F(TrainingProgramsTest, ResidualNet) {
  ExpectSame([](torch::Device device) {
    return TrainResidualNet(device, torch::MemoryFormat::Contiguous);
  });
}

TEST_F(TrainingProgramsTest, ResidualNetInChannelsLast) {
  ExpectSame([](torch::Device device) {
    return TrainResidualNet(device, torch::MemoryFormat::ChannelsLast);
  });
}

// Statistics that share a content are copied before training writes them. The
// order between two threads, of which one trains and one evaluates, is
// preserved.
TEST_F(TrainingProgramsTest, RunningStatisticsAreWritesLikeOthers) {
  constexpr int64_t kChannels = 1 << 15;  // too many to go inline
  const Tensor zeros = torch::zeros({kChannels});
  const Tensor mean = zeros.to(Device(0)), same = zeros.to(Device(0));
  EXPECT_EQ(GetStatistics().uploads_already_held, 1u);
  const Tensor var = torch::ones({kChannels}, torch::TensorOptions(Device(0)));
  const Tensor x = torch::randn({8, kChannels});
  Tensor local_mean = zeros.clone(), local_var = torch::ones({kChannels});
  for (int i = 0; i < 3; ++i) {
    torch::batch_norm(x.to(Device(0)), {}, {}, mean, var, true, 0.1, 1e-5,
                      false);
    torch::batch_norm(x, {}, {}, local_mean, local_var, true, 0.1, 1e-5, false);
    std::thread([&] {
      // Another lane sees the values that this one wrote.
      ExpectEqual(mean + 0, local_mean);
    }).join();
  }
  ExpectEqual(mean, local_mean);
  ExpectEqual(var, local_var);
  ExpectEqual(same, zeros);
}

TEST_F(TrainingProgramsTest, OtherNormalisations) {
  ExpectSame([](torch::Device device) {
    nn::Sequential net(
        nn::Conv1d(nn::Conv1dOptions(3, 8, 3)), nn::BatchNorm1d(8), nn::ReLU(),
        nn::Conv1d(nn::Conv1dOptions(8, 8, 3).groups(2)),
        nn::InstanceNorm1d(
            nn::InstanceNorm1dOptions(8).affine(true).track_running_stats(
                true)),
        nn::GroupNorm(nn::GroupNormOptions(2, 8)), nn::RReLU(), nn::Flatten(),
        nn::Linear(8 * 12, 3), nn::LayerNorm(nn::LayerNormOptions({3})));
    const Tensor inputs = torch::randn({10, 4, 3, 16});
    net->to(device);
    torch::manual_seed(7);
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
    std::vector<Tensor> results;
    for (int step = 0; step < 10; ++step) {
      sgd.zero_grad();
      const Tensor loss = net->forward(inputs[step].to(device)).square().sum();
      loss.backward();
      sgd.step();
      results.push_back(loss.detach());
    }
    AppendState(*net, &results);
    return results;
  });
}

// A transformer layer and an embedding, with typical parameters for optimizers.
struct TinyTransformerImpl : nn::Module {
  TinyTransformerImpl()
      : embedding(register_module("embedding", nn::Embedding(20, 16))),
        layer(register_module("layer",
                              nn::TransformerEncoderLayer(
                                  nn::TransformerEncoderLayerOptions(16, 2)
                                      .dim_feedforward(32)
                                      .dropout(0.1)))),
        head(register_module("head", nn::Linear(16, 20))) {}

  Tensor forward(const Tensor& ids) { return head(layer(embedding(ids))); }

  nn::Embedding embedding;
  nn::TransformerEncoderLayer layer;
  nn::Linear head;
};
TORCH_MODULE(TinyTransformer);

// `make` maps parameters to an optimizer.
template <typename MakeOptimizer>
void ExpectTrainsTheSame(MakeOptimizer make, double clip = 0) {
  ExpectSame([&](torch::Device device) {
    TinyTransformer net;
    const Tensor ids = torch::randint(0, 20, {kSteps, 6, 3});
    net->to(device);
    torch::manual_seed(3);
    auto optimizer = make(net->parameters());
    std::vector<Tensor> results;
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      const Tensor batch = ids[step].to(device);
      const Tensor loss = torch::nn::functional::cross_entropy(
          net(batch).flatten(0, 1), batch.flatten());
      loss.backward();
      if (clip > 0) nn::utils::clip_grad_norm_(net->parameters(), clip);
      optimizer.step();
      results.push_back(loss.detach());
    }
    AppendState(*net, &results);
    return results;
  });
}

TEST_F(TrainingProgramsTest, AdamW) {
  ExpectTrainsTheSame([](std::vector<Tensor> parameters) {
    return torch::optim::AdamW(
        parameters, torch::optim::AdamWOptions(1e-2).weight_decay(0.1));
  });
}

TEST_F(TrainingProgramsTest, AdamWithAmsgradAndClippedGradients) {
  ExpectTrainsTheSame(
      [](std::vector<Tensor> parameters) {
        return torch::optim::Adam(
            parameters, torch::optim::AdamOptions(1e-2).amsgrad(true));
      },
      /*clip=*/0.5);
}

TEST_F(TrainingProgramsTest, RmsProp) {
  ExpectTrainsTheSame([](std::vector<Tensor> parameters) {
    return torch::optim::RMSprop(
        parameters,
        torch::optim::RMSpropOptions(1e-3).momentum(0.9).centered(true));
  });
}

TEST_F(TrainingProgramsTest, Adagrad) {
  ExpectTrainsTheSame([](std::vector<Tensor> parameters) {
    return torch::optim::Adagrad(
        parameters, torch::optim::AdagradOptions(1e-2).lr_decay(1e-3));
  });
}

}  // namespace
}  // namespace djinn
