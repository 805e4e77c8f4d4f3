// The example of README.md; readme_example_test keeps them equal.

#include <djinn/djinn.h>
#include <torch/torch.h>

#include <iostream>

int main() {
  auto cluster = djinn::EmbeddedCluster::Start({.workers = 1}).value();
  if (!djinn::Connect(cluster->connect_options()).ok()) return 1;
  auto device = djinn::Device();  // "remote_accelerator:0"
  torch::nn::Linear model(784, 10);
  model->to(device);
  auto scores = model->forward(torch::randn({8, 784}).to(device)).softmax(1);
  std::cout << scores.argmax(1).cpu() << "\n";
  return djinn::Close().ok() ? 0 : 1;
}
