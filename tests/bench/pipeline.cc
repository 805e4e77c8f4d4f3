// Measures a convolutional network on a device of three workers with one stage
// each, fed with the parts of a batch, beside the same on a device of one
// worker.
#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "c10/core/InferenceMode.h"
#include "common/base/status_macros.h"
#include "djinn/djinn.h"
#include "tests/bench/benchmark.h"
#include "tests/bench/statistics.h"
#include "tests/bench/workloads.h"
#include "torch/torch.h"

namespace djinn::bench {
namespace {

constexpr int kWorkers = 3;
constexpr int64_t kChannels = 64;
constexpr int64_t kImageSize = 56;
constexpr int kLayers = 12;
constexpr int kParts = 12;
constexpr int64_t kImagesPerPart = 2;
constexpr int kMaxRounds = 7;
// The most calls until a repeated graph has been cut.
constexpr int kMaxWarmUps = 200;

class Network {
 public:
  explicit Network(at::Device device) : device_(device) {
    for (int i = 0; i < kLayers; ++i) {
      const int64_t in = i == 0 ? 3 : kChannels;
      weights_.push_back(RandomNormal({kChannels, in, 3, 3}, 0.06,
                                      100 + static_cast<uint64_t>(i))
                             .to(device));
      biases_.push_back(
          RandomNormal({kChannels}, 0.1, 200 + static_cast<uint64_t>(i))
              .to(device));
    }
    head_ = RandomNormal({10, kChannels}, 0.1, 300).to(device);
  }

  // Runs the batch's parts one after the other, and reads the results together.
  at::Tensor Run(const at::Tensor& batch) const {
    const c10::InferenceMode inference;
    std::vector<at::Tensor> results;
    for (at::Tensor x : batch.to(device_).split(kImagesPerPart)) {
      for (int i = 0; i < kLayers; ++i) {
        x = at::relu(at::conv2d(x, weights_[i], biases_[i], 1, 1));
      }
      results.push_back(at::linear(x.mean(at::IntArrayRef({2, 3})), head_));
    }
    return at::cat(results).cpu();
  }

 private:
  const at::Device device_;
  std::vector<at::Tensor> weights_, biases_;
  at::Tensor head_;
};

at::Tensor Batch(uint64_t seed) {
  return RandomNormal({kParts * kImagesPerPart, 3, kImageSize, kImageSize}, 1,
                      seed);
}

class PipelineBenchmark : public Benchmark {
 public:
  explicit PipelineBenchmark(const Options& options)
      : rounds_(std::min(options.rounds, kMaxRounds)) {}

  absl::string_view name() const override { return "pipeline"; }
  bool needs_session() const override { return false; }

  absl::Status Measure(std::vector<Row>* rows) override {
    return WithDeviceOf(kWorkers, [&] { return MeasureBoth(rows); });
  }

 private:
  absl::Status MeasureBoth(std::vector<Row>* rows) {
    const Network local(at::kCPU), staged(Device(0)), alone(Device(1));
    Row row;
    row.benchmark = std::string(name());
    row.variant = absl::StrFormat("CNN of %d layers, %d parts, %d workers",
                                  kLayers, kParts, kWorkers);
    row.baseline_name = "the same on a device of one of these workers";
    row.djinn.emplace();
    row.baseline.emplace();
    uint64_t seed = 1;
    int different = 0;
    int checked = 0;
    const auto check = [&](const Network& network) {
      const at::Tensor batch = Batch(++seed);
      different += !network.Run(batch).equal(local.Run(batch));
      ++checked;
    };
    const uint64_t before = GetStatistics().device_copies;
    for (int i = 0; GetStatistics().device_copies == before; ++i) {
      if (i == kMaxWarmUps) {
        return absl::InternalError("the network was not cut into stages");
      }
      check(staged);
    }
    for (int i = 0; i < 2; ++i) {
      check(staged);
      check(alone);
    }
    const auto measure = [&](const Network& network, Series* series) {
      const at::Tensor batch = Batch(++seed);
      const double start = WallNow();
      const at::Tensor result = network.Run(batch);
      series->AddRound({WallNow() - start});
      different += !result.equal(local.Run(batch));
      ++checked;
      return absl::OkStatus();
    };
    const uint64_t copies = GetStatistics().device_copies;
    DJINN_RETURN_IF_ERROR(Interleave(
        rounds_, [&](int) { return measure(staged, &*row.djinn); },
        [&](int) { return measure(alone, &*row.baseline); }));
    SetRatio(&row);
    row.numbers["crossings_per_part"] =
        static_cast<double>(GetStatistics().device_copies - copies) /
        (rounds_ * kParts);
    // Each worker has one thread, and together they have no more than the
    // machine has cores.
    const int cores = std::min<int>(
        kWorkers, static_cast<int>(std::thread::hardware_concurrency()));
    const double share = 1 / row.ratio->median / cores;
    row.numbers["share_of_the_cores"] = share;
    row.notes.push_back(absl::StrFormat("%.2f of %d cores", share, cores));
    row.checked = absl::StrCat(checked, " batches, equal bits");
    if (different > 0) row.error = absl::StrCat(different, " batches differ");
    rows->push_back(std::move(row));
    return absl::OkStatus();
  }

  const int rounds_;
};

}  // namespace

std::unique_ptr<Benchmark> MakePipeline(const Options& options) {
  return std::make_unique<PipelineBenchmark>(options);
}

}  // namespace djinn::bench
