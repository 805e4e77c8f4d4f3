// A program whose requests may be traced. It finds its cluster and its options
// in the environment. Makes COUNT requests of 12 SIZE x SIZE products, each as
// a part of the trace TRACEPARENT if that is given, and prints how long each
// took by this program's own clock, in seconds. Ends when its standard input
// does: a program that ends sends its spans for two seconds only.
//
// usage: traced_request COUNT SIZE [TRACEPARENT]
#include <ATen/ATen.h>

#include <cstdlib>
#include <iostream>
#include <limits>
#include <optional>

#include "absl/time/clock.h"
#include "djinn/djinn.h"

namespace {

constexpr int kProducts = 12;

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const int size = std::atoi(argv[2]);
  const absl::Status connected = djinn::Connect();
  if (!connected.ok()) {
    std::cerr << connected << std::endl;
    return 1;
  }
  const at::Device device = djinn::Device();
  for (int i = 0; i < std::atoi(argv[1]); ++i) {
    std::optional<djinn::TraceScope> scope;
    if (argc > 3) {
      scope.emplace(argv[3]);
      if (!scope->status().ok()) {
        std::cerr << scope->status() << std::endl;
        return 1;
      }
    }
    const absl::Time began = absl::Now();
    // Powers of the factor neither grow nor vanish.
    const at::Tensor factor = at::full({size, size}, 1.0 / size).to(device);
    at::Tensor product = factor;
    for (int j = 0; j < kProducts; ++j) product = at::mm(product, factor);
    const float value = product.select(0, 0).select(0, 0).cpu().item<float>();
    const absl::Duration took = absl::Now() - began;
    if (value <= 0) return 1;
    std::cout << absl::ToDoubleSeconds(took) << std::endl;
  }
  std::cin.ignore(std::numeric_limits<std::streamsize>::max());
  const absl::Status closed = djinn::Close();
  if (!closed.ok()) std::cerr << closed << std::endl;
  return closed.ok() ? 0 : 1;
}
