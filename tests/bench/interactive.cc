// Measures small requests of one tenant while another tenant trains on the same
// worker. One comparison is between a training whose runs yield to the
// requests, and one whose runs do not yield because they have the same class.
// Another is between a training that declares itself batch work, and one that
// declares nothing.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "c10/core/InferenceMode.h"
#include "common/base/status_macros.h"
#include "djinn/djinn.h"
#include "tests/bench/benchmark.h"
#include "tests/bench/child_process.h"
#include "tests/bench/statistics.h"
#include "tests/bench/tenant_cluster.h"
#include "tests/bench/workloads.h"
#include "torch/torch.h"

namespace djinn::bench {
namespace {

// A training step has, for each layer, one product of these sizes forward and
// two backward. It thus has many nodes, each of which takes some milliseconds.
constexpr int64_t kWidth = 512;
constexpr int64_t kExamples = 512;
constexpr int kLayers = 12;
// Whether the training declares its class.
constexpr char kDeclared[] = "declared";
constexpr char kUndeclared[] = "undeclared";
constexpr int kRequests = 100;
constexpr int kMaxRounds = 7;
// The most that the slowest requests may take while the training yields,
// relative to their time while the training does not yield.
constexpr double kMaxRatio = 0.5;
// A single 99th percentile shows only the machine's worst moment.
constexpr int kRoundsToJudge = 3;
// Pause between requests, so that they meet the training at any point.
constexpr absl::Duration kPause = absl::Milliseconds(7);
// Time until a change of class has reached the worker.
constexpr absl::Duration kClassChange = absl::Milliseconds(500);

// Equal requests: two small layers and a read.
class Requests {
 public:
  Requests()
      : weight_(RandomNormal({256, 256}, 0.1, 1).to(Device())),
        row_(RandomNormal({1, 256}, 1, 2).to(Device())) {
    const at::Tensor weight = RandomNormal({256, 256}, 0.1, 1);
    expected_ =
        at::mm(at::relu(at::mm(RandomNormal({1, 256}, 1, 2), weight)), weight);
  }

  // Makes requests and returns the seconds of each.
  std::vector<double> Make() {
    const c10::InferenceMode inference;
    std::vector<double> seconds;
    for (int i = 0; i < kRequests; ++i) {
      const double start = WallNow();
      const at::Tensor result =
          at::mm(at::relu(at::mm(row_, weight_)), weight_).to(at::kCPU);
      seconds.push_back(WallNow() - start);
      different_ += !result.equal(expected_);
      absl::SleepFor(kPause);
    }
    return seconds;
  }
  int different() const { return different_; }

 private:
  const at::Tensor weight_, row_;
  at::Tensor expected_;
  int different_ = 0;
};

class InteractiveBenchmark : public Benchmark {
 public:
  explicit InteractiveBenchmark(const Options& options)
      : options_(options), rounds_(std::min(options.rounds, kMaxRounds)) {}

  absl::string_view name() const override { return "interactive"; }
  bool needs_session() const override { return false; }

  absl::Status Measure(std::vector<Row>* rows) override {
    DJINN_RETURN_IF_ERROR(MeasureBeside(/*declared=*/true, rows));
    return MeasureBeside(/*declared=*/false, rows);
  }

 private:
  absl::Status MeasureBeside(bool declared, std::vector<Row>* rows) {
    DJINN_ASSIGN_OR_RETURN(
        const auto cluster,
        TenantCluster::Start(
            {.tenants = {"trains", "asks"},
             .of_tenants = "limits: {memory: 2GiB}",
             .of_worker = absl::StrCat("device: {kind: cpu, memory: 6GiB, "
                                       "calibrate: false, threads: ",
                                       options_.threads, "}\n")}));
    DJINN_ASSIGN_OR_RETURN(
        const auto training,
        ChildProcess::Start(
            OwnProgram(),
            {kTrain, cluster->coordinator(), cluster->token_file("trains"),
             declared ? kDeclared : kUndeclared}));
    DJINN_ASSIGN_OR_RETURN(const std::string line,
                           ReadLinePatiently(training.get()));
    if (line != "training") return absl::InternalError(line);
    const absl::Status measured =
        InSession(cluster->connect_options("asks"),
                  [&] { return MeasureRequests(*cluster, declared, rows); });
    training->EndInput();
    DJINN_ASSIGN_OR_RETURN(const std::string end,
                           ReadLinePatiently(training.get()));
    rows->back().notes.push_back(end);
    if (!absl::StartsWith(end, "trained")) rows->back().error = end;
    return measured;
  }

  absl::Status MeasureRequests(const TenantCluster& cluster, bool declared,
                               std::vector<Row>* rows) {
    Requests requests;
    Row row;
    row.benchmark = std::string(name());
    row.variant = declared ? "request beside another tenant's training, p99"
                           : "the same where neither declares a class, p99";
    row.baseline_name = "the same of one class, which does not yield";
    row.djinn.emplace();
    row.baseline.emplace();
    std::vector<double> medians[2];
    const auto measure = [&](Priority priority, int which,
                             Series* series) -> absl::Status {
      DJINN_RETURN_IF_ERROR(SetUrgency({.priority = priority}).status());
      absl::SleepFor(kClassChange);
      const std::vector<double> seconds = requests.Make();
      series->AddRound({Percentile(seconds, 99)});
      medians[which].push_back(Median(seconds));
      return absl::OkStatus();
    };
    const Priority sooner =
        declared ? Priority::kInteractive : Priority::kDefault;
    requests.Make();
    DJINN_RETURN_IF_ERROR(Interleave(
        rounds_, [&](int) { return measure(sooner, 0, &*row.djinn); },
        [&](int) { return measure(Priority::kBatch, 1, &*row.baseline); }));
    SetRatio(&row);
    DJINN_ASSIGN_OR_RETURN(const double preemptions,
                           cluster.Metric("worker", "djinn_preemptions_total"));
    row.numbers["preemptions"] = preemptions;
    row.notes.push_back(absl::StrFormat(
        "medians %.1f and %.1f ms; training yielded %.0f times",
        1e3 * Median(medians[0]), 1e3 * Median(medians[1]), preemptions));
    row.checked = absl::StrCat(kRequests * (2 * rounds_ + 1),
                               " results, equal bits; the training's loss");
    if (requests.different() > 0) {
      row.error = absl::StrCat(requests.different(), " results differ");
    } else if (preemptions == 0) {
      row.error = "training never yielded";
    } else if (rounds_ >= kRoundsToJudge && row.ratio->median > kMaxRatio) {
      row.error = absl::StrFormat(
          "requests take %.2f of the time, not %.2f, when training yields",
          row.ratio->median, kMaxRatio);
    }
    rows->push_back(std::move(row));
    return absl::OkStatus();
  }

  const Options options_;
  const int rounds_;
};

// Trains with plain SGD, equally on every device.
class Training {
 public:
  explicit Training(at::Device device)
      : inputs_(RandomNormal({kExamples, kWidth}, 1, 3).to(device)) {
    for (int i = 0; i < kLayers; ++i) {
      weights_.push_back(
          RandomNormal({kWidth, kWidth}, 0.0625, 4 + static_cast<uint64_t>(i))
              .to(device)
              .requires_grad_());
    }
  }

  float Step() {
    at::Tensor x = inputs_;
    for (const at::Tensor& weight : weights_) x = at::relu(at::mm(x, weight));
    const at::Tensor loss = x.square().mean();
    loss.backward();
    {
      const c10::NoGradGuard no_gradient;
      for (at::Tensor& weight : weights_) {
        weight.sub_(weight.grad(), 0.01);
        weight.mutable_grad().reset();
      }
    }
    return loss.item<float>();
  }

 private:
  const at::Tensor inputs_;
  std::vector<at::Tensor> weights_;
};

absl::Status RunTraining(const ConnectOptions& options) {
  DJINN_RETURN_IF_ERROR(ConnectPatiently(options));
  std::vector<float> losses;
  {
    Training training(Device());
    losses.push_back(training.Step());
    std::cout << "training" << std::endl;
    std::atomic<bool> ended{false};
    std::thread input([&] {
      std::string line;
      while (std::getline(std::cin, line)) {
      }
      ended = true;
    });
    while (!ended) losses.push_back(training.Step());
    input.join();
  }
  DJINN_RETURN_IF_ERROR(Close());
  // Preemptions must not change what the training computed.
  constexpr size_t kCompared = 40;
  Training local(at::kCPU);
  for (size_t i = 0; i < std::min(losses.size(), kCompared); ++i) {
    const float expected = local.Step();
    if (!(std::abs(losses[i] - expected) <= 1e-3f * expected)) {
      return absl::InternalError(
          absl::StrCat("loss ", i, " is ", losses[i], ", not ", expected));
    }
  }
  std::cout << "trained " << losses.size() << " steps" << std::endl;
  return absl::OkStatus();
}

}  // namespace

int Train(int argc, char** argv) {
  if (argc != 3) return 2;
  ConnectOptions options;
  options.coordinator = argv[0];
  options.token_file = argv[1];
  if (absl::string_view(argv[2]) == kDeclared) {
    options.urgency.priority = Priority::kBatch;
  }
  absl::Status status;
  try {
    status = RunTraining(options);
  } catch (const std::exception& error) {
    status = absl::InternalError(error.what());
  }
  if (!status.ok()) std::cout << status << std::endl;
  return status.ok() ? 0 : 1;
}

std::unique_ptr<Benchmark> MakeInteractive(const Options& options) {
  return std::make_unique<InteractiveBenchmark>(options);
}

}  // namespace djinn::bench
