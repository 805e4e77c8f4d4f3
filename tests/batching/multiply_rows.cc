// A program whose runs may be batched. It uploads a weight, which is the same
// in every process that runs it, and prints "loaded". For each input line
// "issue", it issues 64 further layers on rows of its own without waiting for
// them, and prints "issued". For an input line "read", it reads the last
// result, and prints "right" if the value is correct. It finds its cluster in
// the environment. If it fails, the error is its last line.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>

#include "djinn/djinn.h"

namespace {

constexpr int64_t kWidth = 512;

// Issues a contraction, so that differences in the last bits stay there.
void Issue(const at::Tensor& weight, const at::Tensor& first, at::Tensor* row) {
  for (int i = 0; i < 64; ++i) *row = at::mm(*row, weight).tanh() + first;
}

void Run(int number) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
  const at::Tensor weight =
      at::randn({kWidth, kWidth}, generator, at::kFloat).mul_(0.02);
  const at::Tensor first =
      at::arange(kWidth, at::kFloat).mul(0.1 * number).sin().unsqueeze(0);
  at::Tensor row = first;
  djinn::SetExecutionMode(djinn::ExecutionMode::kFast);
  const at::Tensor remote_weight = weight.to(djinn::Device());
  const at::Tensor remote_first = first.to(djinn::Device());
  at::Tensor remote_row = remote_first;
  std::cout << "loaded" << std::endl;
  int rounds = 0;
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "issue") {
      Issue(remote_weight, remote_first, &remote_row);
      ++rounds;
      std::cout << "issued" << std::endl;
    } else {
      for (; rounds > 0; --rounds) Issue(weight, first, &row);
      const bool right = at::allclose(remote_row.cpu(), row, 1e-3, 1e-4);
      std::cout << (right ? "right" : "wrong") << std::endl;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    Run(std::atoi(argv[1]));
  } catch (const std::exception& error) {
    std::cout << error.what() << std::endl;
    return 1;
  }
  return djinn::Close().ok() ? 0 : 1;
}
