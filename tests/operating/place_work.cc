// Computes one kind of workload on the cluster that its environment names, and
// once more in this process. Prints which worker computed it, and whether the
// bits are equal.
//
// usage: place_work compute|transfer SEED
//
// "compute": products of small matrices, one after the other. "transfer": a
// large tensor, and hardly any computation on it.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <cstdint>
#include <iostream>
#include <string>

#include "djinn/djinn.h"

namespace {

at::Tensor Compute(const at::Device& device) {
  at::Tensor x = at::randn({256, 256}).to(device);
  const at::Tensor weight = at::randn({256, 256}).div_(16).to(device);
  for (int i = 0; i < 200; ++i) x = at::mm(x, weight).tanh();
  return x.cpu();
}

at::Tensor Transfer(const at::Device& device) {
  return at::randn({16 << 20}).to(device).narrow(0, 0, 64).mul(2).cpu();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const c10::InferenceMode inference;
  at::set_num_threads(1);
  const std::string kind = argv[1];
  const auto work = kind == "compute" ? Compute : Transfer;
  djinn::ConnectOptions options;
  // The coordinator predicts the work of a session from the previous session
  // with the same program name.
  options.program = "place_work " + kind;
  if (const absl::Status status = djinn::Connect(options); !status.ok()) {
    std::cerr << status << std::endl;
    return 1;
  }
  const auto seed = static_cast<uint64_t>(std::stoul(argv[2]));
  at::manual_seed(seed);
  const at::Tensor remote = work(djinn::Device());
  at::manual_seed(seed);
  const bool equal = remote.equal(work(at::kCPU));
  const absl::StatusOr<djinn::Placement> where = djinn::WhereIs();
  if (!where.ok()) return 1;
  std::cout << where->worker_id << " " << (equal ? "equal" : "different")
            << std::endl;
  return djinn::Close().ok() ? 0 : 1;
}
