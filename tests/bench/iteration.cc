// Measures what an iteration sends that repeats the same calls with another
// number, beside the size of its graph, which crosses once.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/add.h"
#include "ATen/ops/full.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/mul.h"
#include "ATen/ops/sub.h"
#include "ATen/ops/tanh.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "c10/core/InferenceMode.h"
#include "common/base/status_macros.h"
#include "djinn/djinn.h"
#include "tests/bench/benchmark.h"
#include "tests/bench/check.h"
#include "tests/bench/report.h"
#include "tests/bench/statistics.h"

namespace djinn::bench {
namespace {

constexpr int kLayers = 60;
constexpr int64_t kWidth = 16;
constexpr int kIterations = 50;

// Denoises step by step: x -= rate * network(x).
class Denoiser {
 public:
  Denoiser(at::Device device, int64_t width) {
    for (int i = 0; i < kLayers; ++i) {
      weights_.push_back(
          at::full({width, width}, 0.01 * (i % 7 - 3)).to(device));
      biases_.push_back(at::full({width}, 0.125 * (i % 5)).to(device));
    }
  }

  at::Tensor Step(const at::Tensor& x, const at::Tensor& rate) const {
    at::Tensor hidden = x;
    for (int i = 0; i < kLayers; ++i) {
      hidden = at::add(hidden,
                       at::tanh(at::linear(hidden, weights_[i], biases_[i])));
      hidden = at::mul(hidden, 0.75);
    }
    return at::sub(x, at::mul(at::tanh(hidden), rate));
  }

  std::vector<at::Tensor> Parameters() const {
    std::vector<at::Tensor> all = weights_;
    all.insert(all.end(), biases_.begin(), biases_.end());
    return all;
  }

 private:
  std::vector<at::Tensor> weights_, biases_;
};

double Rate(int round, int i) { return 0.001 * (round * kIterations + i + 1); }

class IterationBenchmark : public Benchmark {
 public:
  explicit IterationBenchmark(const Options& options) : options_(options) {}

  absl::string_view name() const override { return "iteration"; }

  absl::Status Measure(std::vector<Row>* rows) override {
    for (const bool registered : {false, true}) {
      DJINN_RETURN_IF_ERROR(MeasureCalls(registered, rows));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status MeasureCalls(bool registered, std::vector<Row>* rows) {
    const c10::InferenceMode inference;
    // The width differs, so that what one variant taught the worker is new to
    // the other one.
    const int64_t width = registered ? kWidth + 8 : kWidth;
    const Denoiser local(at::kCPU, width), remote(Device(), width);
    CompiledFunction compiled(
        [&](const std::vector<at::Tensor>& in) {
          return std::vector<at::Tensor>{remote.Step(in[0], in[1])};
        },
        {.parameters = remote.Parameters()});
    Row row;
    row.benchmark = std::string(name());
    row.variant =
        absl::StrFormat("%d calls, another rate every time%s", 4 * kLayers + 3,
                        registered ? ", registered" : "");
    // The weights are uploaded before anything is counted.
    at::Tensor here = at::full({1, width}, 0.5);
    at::Tensor there = here.to(Device());
    there.to(at::kCPU);
    DJINN_RETURN_IF_ERROR(Synchronize());

    Agreement agreement;
    double seconds = 0;
    const auto step = [&](int round, int i) {
      const Statistics before = GetStatistics();
      const at::Tensor rate = at::full({}, Rate(round, i));
      const double start = WallNow();
      const at::Tensor remote_rate = rate.to(Device());
      there = registered ? compiled({there, remote_rate})[0]
                         : remote.Step(there, remote_rate);
      const at::Tensor result = there.to(at::kCPU);
      seconds = WallNow() - start;
      here = local.Step(here, rate);
      agreement.Add(here, result);
      return GetStatistics() - before;
    };
    const Statistics defining = step(-1, 0);
    for (int i = 1; i < kIterations; ++i) step(-1, i);
    row.djinn.emplace();
    Statistics known;
    for (int round = 0; round < options_.rounds; ++round) {
      std::vector<double> each;
      const Statistics before = GetStatistics();
      for (int i = 0; i < kIterations; ++i) {
        step(round, i);
        each.push_back(seconds);
      }
      known = GetStatistics() - before;
      row.djinn->AddRound(std::move(each));
      ExpectAtMost("graphs defined later", known.graphs_defined, 0, &row.error);
    }
    const double bytes = static_cast<double>(known.bytes_up) / kIterations;
    const double resent = static_cast<double>(defining.bytes_up);
    row.numbers["bytes_up_defining"] = resent;
    row.numbers["bytes_up_known"] = bytes;
    row.numbers["bytes_ratio"] = resent / bytes;
    row.notes.push_back(absl::StrFormat(
        "defining the graph: %s up; known: %s, %.0f times fewer",
        FormatBytes(resent), FormatBytes(bytes), resent / bytes));
    ExpectAtLeast("graphs defined at first", defining.graphs_defined, 1,
                  &row.error);
    if (registered && compiled.statistics().replays == 0) {
      row.error = "not registered: " + compiled.statistics().refusal;
    }
    row.checked = agreement.Describe("results");
    agreement.ExpectWithin(0, "results", &row.error);
    rows->push_back(std::move(row));
    return absl::OkStatus();
  }

  const Options options_;
};

}  // namespace

std::unique_ptr<Benchmark> MakeIteration(const Options& options) {
  return std::make_unique<IterationBenchmark>(options);
}

}  // namespace djinn::bench
