// Encodes requests one by one, as a service does, on the cluster of the
// environment.
//
// Before each request it prints "step", the number of the request and the
// device's worker, and waits for a line. At the end it prints "end", a digest
// of the answers, and the numbers of root errors, recoveries and resumes, like
// recovery_programs.py.
#include <torch/torch.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "djinn/djinn.h"

namespace {

constexpr int kRequests = 24;  // as in recovery_programs.py
constexpr int64_t kWidth = 64, kHeads = 4, kLayers = 2, kWords = 97;

[[noreturn]] void End(const absl::Status& status) {
  std::cerr << status << std::endl;
  std::exit(1);
}

// FNV-1a.
uint64_t Extend(uint64_t digest, const torch::Tensor& value) {
  const auto* const bytes = static_cast<const unsigned char*>(value.data_ptr());
  for (size_t i = 0; i < value.nbytes(); ++i) {
    digest = (digest ^ bytes[i]) * 0x100000001b3u;
  }
  return digest;
}

uint64_t Serve(const torch::Device& device) {
  torch::manual_seed(29);
  torch::nn::Embedding embedding(kWords, kWidth);
  torch::nn::TransformerEncoder encoder(torch::nn::TransformerEncoderOptions(
      torch::nn::TransformerEncoderLayerOptions(kWidth, kHeads)
          .dim_feedforward(2 * kWidth),
      kLayers));
  embedding->eval();
  encoder->eval();
  embedding->to(device);
  encoder->to(device);
  uint64_t digest = 0xcbf29ce484222325u;
  const torch::NoGradGuard no_grad;
  for (int request = 0; request < kRequests; ++request) {
    const absl::StatusOr<djinn::Placement> where = djinn::WhereIs();
    if (!where.ok()) End(where.status());
    std::cout << "step " << request << " " << where->worker_id << std::endl;
    std::string line;
    std::getline(std::cin, line);
    const torch::Tensor tokens =
        torch::randint(kWords, {5 + request % 3, 2}, torch::kLong);
    const torch::Tensor encoded =
        encoder->forward(embedding->forward(tokens.to(device))).mean(0);
    digest = Extend(digest, encoded.cpu().contiguous());
  }
  return digest;
}

}  // namespace

int main() {
  torch::set_num_threads(1);
  // As in recovery_programs.py.
  djinn::ConnectOptions options;
  options.connect_timeout = absl::Minutes(1);
  options.resume_timeout = absl::Seconds(2);
  options.replay_time = absl::Milliseconds(100);
  options.checkpoint_overhead = 0.5;
  if (const absl::Status status = djinn::Connect(options); !status.ok()) {
    End(status);
  }
  const uint64_t digest = Serve(djinn::Device());
  const djinn::Statistics counts = djinn::GetStatistics();
  if (const absl::Status status = djinn::Close(); !status.ok()) End(status);
  std::cout << "end " << digest << " " << counts.root_errors << " "
            << counts.recoveries << " " << counts.resumes << std::endl;
  return 0;
}
