// A program for operators to inspect. It finds its cluster in the environment,
// leaves a storage of every class on a worker, prints "ready" and stays until
// its standard input ends.
//
// usage: hold_session [SECONDS]    how long it waits for a worker
#include <ATen/ATen.h>

#include <cstdlib>
#include <iostream>
#include <limits>

#include "absl/time/time.h"
#include "djinn/djinn.h"

int main(int argc, char** argv) {
  if (argc > 1) {
    djinn::ConnectOptions options;
    options.connect_timeout = absl::Seconds(std::atoi(argv[1]));
    if (!djinn::Connect(options).ok()) return 1;
  }
  const at::Device device = djinn::Device();
  // Above the inline limit, so that the worker keeps the bytes as a content.
  const at::Tensor weights =
      at::arange(1 << 20, at::TensorOptions(at::kFloat)).to(device);
  at::Tensor sums = at::ones({2, 3}).to(device);
  const at::Tensor noise =
      at::rand({2, 3}, at::TensorOptions(at::kFloat).device(device));
  sums.add_(noise);
  const at::Tensor scaled = weights.narrow(0, 0, 6).reshape({2, 3}) * sums;
  if (scaled.cpu().select(0, 0).select(0, 0).item<float>() != 0) return 1;
  std::cout << "ready" << std::endl;
  std::cin.ignore(std::numeric_limits<std::streamsize>::max());
  return 0;
}
