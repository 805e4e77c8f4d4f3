// Writes the messages that a client sends for small programs, as inputs for the
// fuzz targets: graphs, whole sessions and bulk frames.
//
// Usage: record_programs FOLDER, which must have session/, graph/ and
// bulk_frame/.
#include <torch/torch.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/capture/device/backend.h"
#include "client_lib/capture/device/operator_observer.h"
#include "client_lib/capture/device/process_session.h"
#include "client_lib/capture/kernel/capture_kernel.h"
#include "client_lib/capture/registration/registration.h"
#include "client_lib/session/testing/fake_cluster.h"
#include "common/fuzz/session_input.pb.h"
#include "common/transport/bulk_frame.h"

namespace djinn::capture {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Device Remote() { return at::Device("remote_accelerator:0"); }

torch::nn::Sequential Mlp(double dropout) {
  return torch::nn::Sequential(torch::nn::Linear(20, 32), torch::nn::ReLU(),
                               torch::nn::Dropout(dropout),
                               torch::nn::Linear(32, 5));
}

Tensors Forward() {
  auto model = Mlp(0);
  model->to(Remote());
  const torch::NoGradGuard no_grad;
  // This is larger than a message may carry inline.
  Tensors results = {torch::randn({80, 20}).to(Remote())};
  results.push_back(model->forward(results[0]));
  (void)results.back().select(0, 3).cpu();
  return results;
}

Tensors Training() {
  auto model = Mlp(0.25);
  model->to(Remote());
  torch::optim::SGD sgd(model->parameters(),
                        torch::optim::SGDOptions(0.1).momentum(0.9));
  Tensors results;
  for (int step = 0; step < 3; ++step) {
    sgd.zero_grad();
    auto loss = torch::nn::functional::cross_entropy(
        model->forward(torch::randn({4, 20}).to(Remote())),
        torch::randint(0, 5, {4}).to(Remote()));
    loss.backward();
    sgd.step();
    results.push_back(loss.detach());
  }
  (void)results.back().cpu();
  return results;
}

Tensors Encoder() {
  torch::nn::TransformerEncoderLayer layer(
      torch::nn::TransformerEncoderLayerOptions(8, 2)
          .dim_feedforward(16)
          .dropout(0));
  layer->to(Remote());
  const torch::NoGradGuard no_grad;
  Tensors results = {layer->forward(torch::randn({6, 1, 8}).to(Remote()))};
  (void)results[0].cpu();
  return results;
}

Tensors Views() {
  const torch::NoGradGuard no_grad;
  auto x = torch::arange(24, torch::kFloat).view({4, 6}).to(Remote());
  auto y = x.clone();
  y.t().select(0, 1).zero_();
  y.slice(0, 0, 2).copy_(y.slice(0, 2, 4));
  auto complex = torch::complex(x, y);
  auto parts = torch::cat({x, y}, 1).split(3, 1);
  auto mask = x > 3;
  (void)y.t().cpu();
  return {x, y, complex * complex, parts[1] + 2.5, torch::where(mask, x, y)};
}

void Write(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  if (!file) {
    std::fprintf(stderr, "cannot write %s\n", path.c_str());
    std::exit(1);
  }
}

void Record(const std::string& folder, const std::string& name,
            Tensors (*program)()) {
  v1::SessionLimits limits = FakeWorker::DefaultLimits();
  limits.set_inline_bytes(8192);
  FakeCluster cluster(limits);
  SessionOptions options;
  options.device_count = DeviceCount();
  TORCH_CHECK(SetSession(cluster.Open(options)).ok());
  torch::manual_seed(1);
  fuzz::SessionInput input;
  {
    const Tensors results = program();
    TORCH_CHECK(DeviceOfProcess(0).value()->Synchronize().ok());
    int graphs = 0;
    for (v1::Ordered& message : cluster.worker().seen().received) {
      if (message.has_define_graph()) {
        Write(absl::StrCat(folder, "/graph/", name, graphs++),
              message.define_graph().graph().SerializeAsString());
      }
      fuzz::Step* const step = input.add_steps();
      step->set_repaired(true);
      *step->mutable_ordered() = std::move(message);
      step->mutable_ordered()->clear_sequence();
      if (!step->ordered().install().has_transfer()) continue;
      const v1::Install& install = step->ordered().install();
      v1::BulkChunk* const chunk = input.add_steps()->mutable_chunk();
      chunk->set_transfer_id(install.transfer().transfer_id());
      chunk->set_payload(cluster.worker().contents(install.storage()));
      // The first byte says where the fuzz target cuts the frame.
      Write(absl::StrCat(folder, "/bulk_frame/", name),
            absl::StrCat(
                "\x40",
                EncodeBulkHeader(chunk->transfer_id(), 0, chunk->payload()),
                chunk->payload()));
    }
  }
  Write(absl::StrCat(folder, "/session/", name), input.SerializeAsString());
  v1::BulkHello hello;
  hello.set_session_id("session");
  hello.set_lease_token("token");
  Write(absl::StrCat(folder, "/bulk_frame/hello"),
        absl::StrCat("\x05", EncodeBulkHello(hello)));
  TORCH_CHECK(TakeSession()->Close(absl::Seconds(5)).ok());
}

}  // namespace
}  // namespace djinn::capture

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: record_programs FOLDER\n");
    return 2;
  }
  djinn::capture::RegisterBackend();
  djinn::capture::RegisterOperators();
  djinn::capture::RegisterCaptureScope();
  djinn::capture::Record(argv[1], "forward", djinn::capture::Forward);
  djinn::capture::Record(argv[1], "training", djinn::capture::Training);
  djinn::capture::Record(argv[1], "encoder", djinn::capture::Encoder);
  djinn::capture::Record(argv[1], "views", djinn::capture::Views);
  return 0;
}
