// What an iteration sends that does the same again with another number, beside
// what it takes to say its structure, which crosses once.
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
#include "common/status_macros.h"
#include "djinn/djinn.h"
#include "tests/bench/benchmark.h"
#include "tests/bench/check.h"
#include "tests/bench/format.h"
#include "tests/bench/stopwatch.h"

namespace djinn::bench {
namespace {

constexpr int kLayers = 60;
constexpr int64_t kWidth = 16;
constexpr int kIterations = 50;

// Denoises step by step: x -= rate * network(x).
class Denoiser {
 public:
  explicit Denoiser(at::Device device) {
    for (int i = 0; i < kLayers; ++i) {
      weights_.push_back(
          at::full({kWidth, kWidth}, 0.01 * (i % 7 - 3)).to(device));
      biases_.push_back(at::full({kWidth}, 0.125 * (i % 5)).to(device));
    }
  }

  at::Tensor Step(const at::Tensor& x, double rate) const {
    at::Tensor hidden = x;
    for (int i = 0; i < kLayers; ++i) {
      hidden = at::add(hidden,
                       at::tanh(at::linear(hidden, weights_[i], biases_[i])));
      hidden = at::mul(hidden, 0.75);
    }
    return at::sub(x, at::tanh(hidden), rate);
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
    const c10::InferenceMode inference;
    const Denoiser local(at::kCPU), remote(Device());
    Row row;
    row.benchmark = std::string(name());
    row.variant =
        absl::StrFormat("%d calls, with another rate every time", 4 * kLayers + 2);
    // The weights are there before anything is counted.
    at::Tensor here = at::full({1, kWidth}, 0.5);
    at::Tensor there = here.to(Device());
    there.to(at::kCPU);
    DJINN_RETURN_IF_ERROR(Synchronize());

    Agreement agreement;
    const auto step = [&](int round, int i) {
      const Statistics before = GetStatistics();
      there = remote.Step(there, Rate(round, i));
      here = local.Step(here, Rate(round, i));
      agreement.Add(here, there.to(at::kCPU));
      return GetStatistics() - before;
    };
    Statistics defining = step(-1, 0);
    row.djinn.emplace();
    uint64_t bytes = 0;
    for (int i = 1; i < kIterations; ++i) step(-1, i);
    uint64_t defined_later = 0;
    for (int round = 0; round < options_.rounds; ++round) {
      std::vector<double> seconds;
      for (int i = 0; i < kIterations; ++i) {
        const double start = WallNow();
        const Statistics moved = step(round, i);
        seconds.push_back(WallNow() - start);
        bytes += moved.bytes_up;
        defined_later += moved.structures_defined;
      }
      row.djinn->AddRound(std::move(seconds));
    }
    const double each = static_cast<double>(bytes) /
                        (static_cast<double>(options_.rounds) * kIterations);
    const double resent = static_cast<double>(defining.bytes_up);
    row.numbers["bytes_up_defining"] = resent;
    row.numbers["bytes_up_known"] = each;
    row.numbers["bytes_ratio"] = resent / each;
    row.notes.push_back(absl::StrFormat(
        "defining the structure: %s up; known: %s, %.0f times fewer",
        FormatBytes(resent), FormatBytes(each), resent / each));
    ExpectAtLeast("structures defined at first", defining.structures_defined, 1,
                  &row.error);
    ExpectAtMost("structures defined later", defined_later, 0, &row.error);
    row.checked = agreement.Describe("results");
    agreement.ExpectWithin(0, "results", &row.error);
    rows->push_back(std::move(row));
    return absl::OkStatus();
  }

 private:
  const Options options_;
};

}  // namespace

std::unique_ptr<Benchmark> MakeIteration(const Options& options) {
  return std::make_unique<IterationBenchmark>(options);
}

}  // namespace djinn::bench
