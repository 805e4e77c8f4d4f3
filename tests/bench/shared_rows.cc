// Measures a registered callable on a device of several workers of one thread
// each. Its batch is divided into rows, with some rows on each worker, or
// passes through the workers' stages in micro-batches. The baseline is the same
// callable on a device of one such worker.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "c10/core/InferenceMode.h"
#include "common/base/status_macros.h"
#include "djinn/djinn.h"
#include "tests/bench/benchmark.h"
#include "tests/bench/check.h"
#include "tests/bench/statistics.h"
#include "tests/bench/workloads.h"
#include "torch/torch.h"

namespace djinn::bench {
namespace {

constexpr int kWorkers = 2;
// With three equal layers, one of two stages would have two layers, so dividing
// the rows is more even. Four layers have two equal stages, and run in stages
// if the transferred bytes hardly matter.
struct Case {
  int layers;
  int64_t width;
  int64_t rows;
  absl::string_view how;
};
constexpr Case kByRows = {3, 1024, 1024, "by rows"};
constexpr Case kInStages = {4, 2048, 1024, "in micro-batches"};
constexpr int kCallsPerRound = 3;
constexpr int kMaxRounds = 9;
// The most calls until a call is replayed as a whole.
constexpr int kMaxWarmUps = 200;
// Fast mode may take sums in another order.
constexpr double kTolerance = 2e-4;

class Layers {
 public:
  Layers(at::Device device, const Case& size) : device_(device) {
    const double deviation = 1 / std::sqrt(static_cast<double>(size.width));
    for (int i = 0; i < size.layers; ++i) {
      weights_.push_back(RandomNormal({size.width, size.width}, deviation,
                                      100 + static_cast<uint64_t>(i))
                             .to(device));
    }
    CompileOptions options;
    options.parameters = weights_;
    compiled_ = std::make_unique<CompiledFunction>(
        [this](const std::vector<at::Tensor>& in) {
          return std::vector<at::Tensor>{Forward(in[0])};
        },
        options);
  }

  at::Tensor Forward(at::Tensor x) const {
    for (const at::Tensor& weight : weights_) {
      x = at::relu(at::linear(x, weight));
    }
    return x;
  }
  // Sends the rows, and reads their results.
  at::Tensor Call(const at::Tensor& rows) {
    return (*compiled_)({rows.to(device_)})[0].cpu();
  }
  CompileStatistics statistics() const { return compiled_->statistics(); }

 private:
  const at::Device device_;
  std::vector<at::Tensor> weights_;
  std::unique_ptr<CompiledFunction> compiled_;
};

class SharedRowsBenchmark : public Benchmark {
 public:
  explicit SharedRowsBenchmark(const Options& options)
      : rounds_(std::min(options.rounds, kMaxRounds)) {}

  absl::string_view name() const override { return "shared_rows"; }
  bool needs_session() const override { return false; }

  absl::Status Measure(std::vector<Row>* rows) override {
    const absl::Cleanup restore = [] {
      SetExecutionMode(ExecutionMode::kStrict);
    };
    return WithDeviceOf(kWorkers, [&] {
      SetExecutionMode(ExecutionMode::kFast);
      absl::Status measured = MeasureBoth(kByRows, rows);
      if (measured.ok()) measured = MeasureBoth(kInStages, rows);
      return measured;
    });
  }

 private:
  // Calls the function until its calls are replayed as a whole.
  static absl::Status WarmUp(const std::function<void()>& call,
                             const Layers& layers) {
    for (int i = 0; layers.statistics().replays == 0; ++i) {
      if (i == kMaxWarmUps) {
        return absl::InternalError(absl::StrCat("not replayed as a whole: ",
                                                layers.statistics().refusal));
      }
      call();
    }
    for (int i = 0; i < 2; ++i) call();
    return absl::OkStatus();
  }

  absl::Status MeasureBoth(const Case& measured, std::vector<Row>* rows) {
    const c10::InferenceMode inference;
    const Layers local(at::kCPU, measured);
    Layers shared(Device(0), measured);
    Layers alone(Device(1), measured);
    Row row;
    row.benchmark = std::string(name());
    row.variant = absl::StrFormat(
        "%d layers of %d, %d rows, fast, %d workers, %s", measured.layers,
        measured.width, measured.rows, kWorkers, measured.how);
    row.baseline_name = "the same on a device of one of these workers";
    row.djinn.emplace();
    row.baseline.emplace();
    Agreement agreement;
    uint64_t seed = 1;
    const auto call = [&](Layers* of) {
      const at::Tensor input =
          RandomNormal({measured.rows, measured.width}, 1, ++seed);
      const double start = WallNow();
      const at::Tensor result = of->Call(input);
      const double seconds = WallNow() - start;
      agreement.Add(local.Forward(input), result);
      return seconds;
    };
    for (Layers* const each : {&shared, &alone}) {
      DJINN_RETURN_IF_ERROR(WarmUp([&] { call(each); }, *each));
    }
    uint64_t replays = shared.statistics().replays;
    uint64_t crossings = 0;
    const auto measure = [&](Layers* of, Series* series) {
      const uint64_t before = GetStatistics().device_copies;
      std::vector<double> seconds;
      for (int i = 0; i < kCallsPerRound; ++i) seconds.push_back(call(of));
      series->AddRound(std::move(seconds));
      if (of == &shared) {
        crossings += GetStatistics().device_copies - before;
      }
      return absl::OkStatus();
    };
    DJINN_RETURN_IF_ERROR(Interleave(
        rounds_, [&](int) { return measure(&shared, &*row.djinn); },
        [&](int) { return measure(&alone, &*row.baseline); }));
    SetRatio(&row);
    const auto calls = static_cast<uint64_t>(rounds_ * kCallsPerRound);
    row.numbers["crossings_per_call"] =
        static_cast<double>(crossings) / static_cast<double>(calls);
    replays = shared.statistics().replays - replays;
    ExpectAtLeast("calls that were shared", replays, calls, &row.error);
    // The rows go to the other worker and come back.
    ExpectAtLeast("crossings", crossings, 2 * calls, &row.error);
    agreement.ExpectWithin(kTolerance, "results", &row.error);
    row.checked = agreement.Describe("results");
    rows->push_back(std::move(row));
    return absl::OkStatus();
  }

  const int rounds_;
};

}  // namespace

std::unique_ptr<Benchmark> MakeSharedRows(const Options& options) {
  return std::make_unique<SharedRowsBenchmark>(options);
}

}  // namespace djinn::bench
