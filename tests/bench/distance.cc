// Measures a token and a training step of a program whose worker is far away.
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/Parallel.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/randint.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/tensor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "c10/core/InferenceMode.h"
#include "common/base/status_macros.h"
#include "djinn/djinn.h"
#include "tests/bench/benchmark.h"
#include "tests/bench/check.h"
#include "tests/bench/statistics.h"
#include "tests/bench/tenant_cluster.h"
#include "tests/bench/workloads.h"
#include "tests/chaos/fault_proxy.h"
#include "tests/models/decoder.h"

namespace djinn::bench {
namespace {

// Time of the round trip.
constexpr absl::Duration kRoundTrip = absl::Milliseconds(30);
// The most round trips that the best token or step may take: one, and less than
// another half. A second round trip would exceed this.
constexpr double kMaxRoundTrips = 1.5;
constexpr int kTimes = 32;
constexpr int kMaxRounds = 5;
constexpr int64_t kPromptTokens = 16;
constexpr DecoderShape kShape = {.layers = 4, .width = 256, .heads = 4};
constexpr uint64_t kSeed = 17;
// Less than the network holds in flight.
constexpr int kTensors = 10;
constexpr int64_t kElements = 10'240;
// Tolerance of losses; tokens are equal.
constexpr double kTolerance = 1e-6;

// Values that are read one at a time, and how long each read took.
struct Outcome {
  at::Tensor values;
  std::vector<double> seconds;
};
using Program = std::function<Outcome(int round)>;

Program DecodeOn(at::Device device) {
  const auto decoder = std::make_shared<Decoder>(kShape, kSeed, device);
  return [decoder, device](int round) {
    const c10::InferenceMode inference;
    Decoder::Sequence sequence(decoder.get(), DecoderCache::kConcatenated);
    const at::Tensor prompt =
        at::arange(kPromptTokens, at::kLong).mul(round + 3);
    at::Tensor next = sequence.Next(prompt.unsqueeze(0).to(device));
    std::vector<int64_t> tokens = {next.item<int64_t>()};
    Outcome outcome;
    for (int i = 0; i < kTimes; ++i) {
      const double start = WallNow();
      next = sequence.Next(next);
      tokens.push_back(next.item<int64_t>());
      outcome.seconds.push_back(WallNow() - start);
    }
    outcome.values = at::tensor(tokens);
    return outcome;
  };
}

Program TrainOn(at::Device device) {
  const auto mlp = std::make_shared<Mlp>(device);
  return [mlp](int round) {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(
        static_cast<uint64_t>(round + 3));
    std::vector<float> losses;
    Outcome outcome;
    for (int i = 0; i < kTimes; ++i) {
      const at::Tensor inputs =
          at::randn({8, kMlpInputs}, generator, at::kFloat);
      const at::Tensor labels =
          at::randint(kMlpClasses, {8}, generator, at::kLong);
      const double start = WallNow();
      losses.push_back(mlp->Step(inputs, labels));
      outcome.seconds.push_back(WallNow() - start);
    }
    outcome.values = at::tensor(losses);
    return outcome;
  };
}

// Moves tensors that are too large for a message, with other bytes each time,
// as a program does with a model's weights or with a batch of images.
Program MoveTo(at::Device device) {
  return [device](int round) {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(
        static_cast<uint64_t>(round + 3));
    std::vector<int64_t> sums;
    Outcome outcome;
    for (int i = 0; i < kTimes; ++i) {
      std::vector<at::Tensor> tensors;
      for (int k = 0; k < kTensors; ++k) {
        tensors.push_back(at::randint(1000, {kElements}, generator, at::kLong));
      }
      const double start = WallNow();
      at::Tensor sum = tensors[0].to(device).sum();
      for (int k = 1; k < kTensors; ++k) {
        sum = sum.add(tensors[k].to(device).sum());
      }
      sums.push_back(sum.item<int64_t>());
      outcome.seconds.push_back(WallNow() - start);
    }
    outcome.values = at::tensor(sums);
    return outcome;
  };
}

class DistanceBenchmark : public Benchmark {
 public:
  explicit DistanceBenchmark(const Options& options)
      : threads_(options.threads),
        rounds_(std::min(options.rounds, kMaxRounds)) {}

  absl::string_view name() const override { return "distance"; }
  bool needs_session() const override { return false; }

  absl::Status Measure(std::vector<Row>* rows) override {
    const std::string folder = std::filesystem::temp_directory_path();
    std::string sockets = folder + "/djinn-bench-XXXXXX";
    if (mkdtemp(sockets.data()) == nullptr) {
      return absl::InternalError("cannot make a folder");
    }
    const absl::Status measured = MeasureThrough(sockets, rows);
    std::error_code ignored;
    std::filesystem::remove_all(sockets, ignored);
    return measured;
  }

 private:
  absl::Status MeasureThrough(const std::string& sockets,
                              std::vector<Row>* rows) {
    const std::string near = sockets + "/near", far = sockets + "/far";
    FaultProxy network(near, far);
    DJINN_ASSIGN_OR_RETURN(
        const auto cluster,
        TenantCluster::Start({.tenants = {"one"},
                              .of_tenants = "share_contents: false",
                              .worker_listens = "unix:" + far,
                              .of_worker = absl::StrCat(
                                  "advertise: unix:", near,
                                  "\ndevice: {threads: ", threads_, "}\n")}));
    ConnectOptions connect = cluster->connect_options("one");
    connect.shared_memory = false;
    at::set_num_threads(threads_);
    return InSession(connect, [&] { return MeasurePrograms(&network, rows); });
  }

  absl::Status MeasurePrograms(FaultProxy* network, std::vector<Row>* rows) {
    absl::Status measured =
        MeasureProgram("decoder of 4 layers, a token", "tokens",
                       DecodeOn(at::kCPU), DecodeOn(Device()), network, rows);
    if (measured.ok()) {
      measured =
          MeasureProgram("MLP 784-128-10, a training step", "losses",
                         TrainOn(at::kCPU), TrainOn(Device()), network, rows);
    }
    if (measured.ok()) {
      measured = MeasureProgram(
          absl::StrFormat("%d tensors of %d KiB moved and used", kTensors,
                          kElements * sizeof(int64_t) / 1024),
          "sums", MoveTo(at::kCPU), MoveTo(Device()), network, rows);
    }
    network->Heal();
    return measured;
  }

  absl::Status MeasureProgram(const std::string& variant,
                              const std::string& values, const Program& local,
                              const Program& remote, FaultProxy* network,
                              std::vector<Row>* rows) {
    Row row;
    row.benchmark = std::string(name());
    row.variant =
        absl::StrCat(variant, ", ", absl::FormatDuration(kRoundTrip), " away");
    row.baseline_name = "the same without the distance";
    row.djinn.emplace();
    row.baseline.emplace();
    Agreement agreement;
    // From far away, and from near.
    double fastest[2] = {std::numeric_limits<double>::infinity(),
                         std::numeric_limits<double>::infinity()};
    // A program with a state of its own, which takes the same steps on the CPU
    // and on the device.
    const auto run = [&](int round, absl::Duration distance, Series* series) {
      network->Delay(distance / 2);
      const Statistics before = GetStatistics();
      Outcome outcome = remote(round);
      const Statistics moved = GetStatistics() - before;
      network->Delay(absl::ZeroDuration());
      agreement.Add(local(round).values, outcome.values);
      if (series == nullptr) return absl::OkStatus();
      ExpectAtMost("reads", moved.reads, kTimes + 1, &row.error);
      ExpectAtMost("synchronous calls", moved.synchronous_calls, 0, &row.error);
      double& least = fastest[distance == absl::ZeroDuration() ? 1 : 0];
      least = std::min(least, *std::min_element(outcome.seconds.begin(),
                                                outcome.seconds.end()));
      series->AddRound(std::move(outcome.seconds));
      return absl::OkStatus();
    };
    for (int i = 0; i < 2; ++i) {
      DJINN_RETURN_IF_ERROR(run(-1, absl::ZeroDuration(), nullptr));
    }
    DJINN_RETURN_IF_ERROR(Interleave(
        rounds_, [&](int round) { return run(round, kRoundTrip, &*row.djinn); },
        [&](int round) {
          return run(rounds_ + round, absl::ZeroDuration(), &*row.baseline);
        }));
    SetRatio(&row);
    const double trips = (Median(row.djinn->RoundMedians()) -
                          Median(row.baseline->RoundMedians())) /
                         absl::ToDoubleSeconds(kRoundTrip);
    row.numbers["round_trips"] = trips;
    row.notes.push_back(
        absl::StrFormat("the distance costs %.2f round trips", trips));
    // On a busy machine only the fastest times are meaningful.
    const double at_best =
        (fastest[0] - fastest[1]) / absl::ToDoubleSeconds(kRoundTrip);
    row.numbers["round_trips_at_best"] = at_best;
    if (!(at_best > 1 / kMaxRoundTrips && at_best < kMaxRoundTrips) &&
        row.error.empty()) {
      row.error = absl::StrFormat(
          "the distance costs %.2f round trips at best, not one", at_best);
    }
    row.checked = agreement.Describe(absl::StrCat("rounds of ", values));
    agreement.ExpectWithin(kTolerance, values, &row.error);
    rows->push_back(std::move(row));
    return absl::OkStatus();
  }

  const int threads_;
  const int rounds_;
};

}  // namespace

std::unique_ptr<Benchmark> MakeDistance(const Options& options) {
  return std::make_unique<DistanceBenchmark>(options);
}

}  // namespace djinn::bench
