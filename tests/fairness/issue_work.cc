// A program that keeps a worker busy. It issues ROUNDS times 64 matrix
// products. Without a second argument it does not wait for them; with one, it
// reads the last product. Then it prints "issued". It repeats this for every
// line of its standard input. It finds its cluster in the environment. If it
// fails, the error is its last line.
#include <ATen/ATen.h>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>

#include "djinn/djinn.h"

namespace {

constexpr int kCallsOfARound = 64;
constexpr int64_t kSize = 192;

void Issue(int rounds, bool read) {
  const auto on_device = at::TensorOptions(at::kFloat).device(djinn::Device());
  const at::Tensor factor = at::full({kSize, kSize}, 1.0 / kSize, on_device);
  at::Tensor product = at::ones({kSize, kSize}, on_device);
  for (int i = 0; i < rounds * kCallsOfARound; ++i) {
    product = at::mm(product, factor);
  }
  if (read) product = product.cpu();
}

}  // namespace

int main(int argc, char** argv) {
  std::string line;
  do {
    try {
      Issue(argc > 1 ? std::atoi(argv[1]) : 1, argc > 2);
    } catch (const std::exception& error) {
      std::cout << error.what() << std::endl;
      std::_Exit(1);
    }
    std::cout << "issued" << std::endl;
  } while (std::getline(std::cin, line));
  // Remaining runs do not matter.
  std::_Exit(0);
}
