// Measures a training step of a small network whose loss is read every time.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/Parallel.h"
#include "ATen/ops/randint.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/tensor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "djinn/djinn.h"
#include "tests/bench/benchmark.h"
#include "tests/bench/check.h"
#include "tests/bench/report.h"
#include "tests/bench/statistics.h"
#include "tests/bench/workloads.h"

namespace djinn::bench {
namespace {

constexpr int64_t kBatch = 8;
constexpr int kStepsPerRound = 50;
// Sums may be taken in another order.
constexpr double kTolerance = 1e-6;

struct Trained {
  std::vector<float> losses;
  std::vector<double> seconds;
};

// Trains on new examples in every step of every round.
Trained Train(int round, Mlp* mlp) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(
      static_cast<uint64_t>(100 + round));
  Trained trained;
  for (int i = 0; i < kStepsPerRound; ++i) {
    const at::Tensor inputs =
        at::randn({kBatch, kMlpInputs}, generator, at::kFloat);
    const at::Tensor labels =
        at::randint(kMlpClasses, {kBatch}, generator, at::kLong);
    const double start = WallNow();
    trained.losses.push_back(mlp->Step(inputs, labels));
    trained.seconds.push_back(WallNow() - start);
  }
  return trained;
}

class MlpStepBenchmark : public Benchmark {
 public:
  explicit MlpStepBenchmark(const Options& options) : options_(options) {}

  absl::string_view name() const override { return "mlp_step"; }

  // Measures with one thread and with several. The faster one is the baseline.
  absl::Status MeasureAlone() override {
    if (options_.device != "cpu") {
      return absl::UnimplementedError(
          "PyTorch takes no gradients on a local GPU in a process that has "
          "Djinn's device (docs/user/limits.md)");
    }
    for (const int threads : {1, options_.threads}) {
      at::set_num_threads(threads);
      Mlp mlp(at::kCPU);
      Train(-1, &mlp);
      Series series;
      DJINN_RETURN_IF_ERROR(MeasureRounds(options_.rounds, [&](int round) {
        series.AddRound(Train(round, &mlp).seconds);
        return absl::OkStatus();
      }));
      if (alone_.empty() ||
          Median(series.RoundMedians()) < Median(alone_.RoundMedians())) {
        alone_ = std::move(series);
        local_threads_ = threads;
      }
    }
    return absl::OkStatus();
  }

  absl::Status Measure(std::vector<Row>* rows) override {
    for (const ExecutionMode mode :
         {ExecutionMode::kStrict, ExecutionMode::kFast}) {
      for (const bool registered : {false, true}) {
        SetExecutionMode(mode);
        const absl::Status measured = MeasureMode(mode, registered, rows);
        SetExecutionMode(ExecutionMode::kStrict);
        DJINN_RETURN_IF_ERROR(measured);
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status MeasureMode(ExecutionMode mode, bool registered,
                           std::vector<Row>* rows) {
    at::set_num_threads(local_threads_);
    Mlp local(at::kCPU);
    Mlp remote(Device(), registered);
    Row row;
    row.benchmark = std::string(name());
    DJINN_ASSIGN_OR_RETURN(const std::string transport, Transport());
    row.variant = absl::StrFormat(
        "%d-%d-%d, batch %d, %s%s, %s", kMlpInputs, kMlpHidden, kMlpClasses,
        kBatch, registered ? "registered, " : "",
        mode == ExecutionMode::kFast ? "fast" : "strict", transport);
    Agreement agreement;
    const auto compare = [&](const Trained& expected, const Trained& actual) {
      agreement.Add(at::tensor(expected.losses), at::tensor(actual.losses));
    };
    const Trained local_warm_up = Train(-1, &local);
    compare(local_warm_up, Train(-1, &remote));

    std::vector<Trained> djinn(options_.rounds), beside(options_.rounds);
    Statistics moved;
    DJINN_RETURN_IF_ERROR(Interleave(
        options_.rounds,
        [&](int round) {
          const Statistics before = GetStatistics();
          djinn[round] = Train(round, &remote);
          moved = GetStatistics() - before;
          CheckTraffic(moved, &row.error);
          return absl::OkStatus();
        },
        [&](int round) {
          beside[round] = Train(round, &local);
          return absl::OkStatus();
        }));
    row.djinn.emplace();
    row.baseline.emplace();
    for (int round = 0; round < options_.rounds; ++round) {
      compare(beside[round], djinn[round]);
      row.djinn->AddRound(djinn[round].seconds);
      row.baseline->AddRound(beside[round].seconds);
    }
    row.baseline_alone = alone_;
    row.baseline_name = absl::StrCat("local eager, threads: ", local_threads_);
    SetRatio(&row);
    row.numbers["bytes_up_per_step"] =
        static_cast<double>(moved.bytes_up) / kStepsPerRound;
    row.numbers["bytes_down_per_step"] =
        static_cast<double>(moved.bytes_down) / kStepsPerRound;
    row.numbers["runs_per_step"] =
        static_cast<double>(moved.runs) / kStepsPerRound;
    row.notes.push_back(absl::StrFormat(
        "a step: %.1f runs, %s up, %s down", row.numbers["runs_per_step"],
        FormatBytes(row.numbers["bytes_up_per_step"]),
        FormatBytes(row.numbers["bytes_down_per_step"])));
    row.checked = agreement.Describe(
        absl::StrCat("rounds of ", kStepsPerRound, " losses"));
    agreement.ExpectWithin(kTolerance, "losses", &row.error);
    rows->push_back(std::move(row));
    return absl::OkStatus();
  }

  // The client sends examples and receives losses. The weights stay on the
  // worker.
  static void CheckTraffic(const Statistics& moved, std::string* error) {
    constexpr uint64_t kExamples =
        kBatch * (kMlpInputs * sizeof(float) + sizeof(int64_t));
    ExpectAtLeast("reads", moved.reads, kStepsPerRound, error);
    ExpectAtLeast("bytes up", moved.bytes_up, kStepsPerRound * kExamples,
                  error);
    ExpectAtMost("bytes up", moved.bytes_up, kStepsPerRound * kExamples * 2,
                 error);
    ExpectAtLeast("bytes down", moved.bytes_down,
                  kStepsPerRound * sizeof(float), error);
    ExpectAtMost("synchronous calls", moved.synchronous_calls, 0, error);
  }

  const Options options_;
  int local_threads_ = 1;
  Series alone_;
};

}  // namespace

std::unique_ptr<Benchmark> MakeMlpStep(const Options& options) {
  return std::make_unique<MlpStepBenchmark>(options);
}

}  // namespace djinn::bench
