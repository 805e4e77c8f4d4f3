// Measures the latency components of a warm request: a registered call with
// another input every time, and a read of its result.
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/add.h"
#include "ATen/ops/full.h"
#include "ATen/ops/mm.h"
#include "ATen/ops/relu.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "c10/core/InferenceMode.h"
#include "common/base/status_macros.h"
#include "djinn/djinn.h"
#include "tests/bench/benchmark.h"
#include "tests/bench/check.h"
#include "tests/bench/statistics.h"

namespace djinn::bench {
namespace {

constexpr int kRequests = 200;
constexpr int kWarmUp = 20;
constexpr int64_t kWidth = 64;
// The share of the caller's time that the components must explain. The caller
// spends the remaining time on reading the clock twice.
constexpr double kLeastExplained = 0.95;

class StagesBenchmark : public Benchmark {
 public:
  explicit StagesBenchmark(const Options& options) : options_(options) {}

  absl::string_view name() const override { return "stages"; }

  absl::Status Measure(std::vector<Row>* rows) override {
    const c10::InferenceMode inference;
    const at::Tensor weight = at::full({kWidth, kWidth}, 0.25);
    const at::Tensor remote_weight = weight.to(Device());
    CompiledFunction layer(
        [&](const std::vector<at::Tensor>& in) {
          return std::vector<at::Tensor>{
              at::relu(at::add(at::mm(in[0], remote_weight), 1))};
        },
        {.parameters = {remote_weight}});
    std::vector<at::Tensor> inputs;
    for (int i = 0; i < kWarmUp + kRequests; ++i) {
      inputs.push_back(
          at::full({kWidth, kWidth}, static_cast<double>(i)).to(Device()));
    }
    Agreement agreement;
    Series walls;
    // Shares of the wall time that the components explain.
    std::vector<double> shares;
    std::string error;
    std::string table;
    for (int round = 0; round < options_.rounds; ++round) {
      std::vector<at::Tensor> results(inputs.size());
      std::vector<double> seconds;
      for (int i = 0; i < kWarmUp; ++i) {
        results[i] = layer({inputs[i]})[0].to(at::kCPU);
      }
      ProfileScope scope;
      for (size_t i = kWarmUp; i < inputs.size(); ++i) {
        const double start = WallNow();
        results[i] = layer({inputs[i]})[0].to(at::kCPU);
        seconds.push_back(WallNow() - start);
      }
      DJINN_ASSIGN_OR_RETURN(const Profile profile, scope.Finish());
      if (profile.requests.size() != seconds.size()) {
        error = absl::StrCat(profile.requests.size(), " requests profiled, ",
                             seconds.size(), " made");
        break;
      }
      double sum = 0;
      double wall = 0;
      for (size_t i = 0; i < seconds.size(); ++i) {
        for (const absl::Duration stage : profile.requests[i].stages) {
          sum += absl::ToDoubleSeconds(stage);
        }
        wall += seconds[i];
      }
      shares.push_back(sum / wall);
      for (size_t i = 0; i < inputs.size(); ++i) {
        agreement.Add(at::relu(at::add(at::mm(at::full({kWidth, kWidth},
                                                       static_cast<double>(i)),
                                              weight),
                                       1)),
                      results[i]);
      }
      walls.AddRound(std::move(seconds));
      table = profile.StageTable();
    }
    Row row;
    row.benchmark = std::string(name());
    DJINN_ASSIGN_OR_RETURN(const std::string transport, Transport());
    row.variant = absl::StrCat("registered layer and read, ", transport);
    if (layer.statistics().replays == 0) {
      error = absl::StrCat("not registered: ", layer.statistics().refusal);
    }
    agreement.ExpectWithin(0, "results", &error);
    if (!shares.empty()) {
      const double share = Median(shares);
      row.numbers["stages_of_wall"] = share;
      row.notes.push_back(absl::StrFormat(
          "the stages are %.1f%% of what the caller measured", 100 * share));
      if (share < kLeastExplained && error.empty()) {
        error = absl::StrFormat("the stages explain %.3f of the time, not %.2f",
                                share, kLeastExplained);
      }
    }
    row.djinn = std::move(walls);
    for (const absl::string_view line :
         absl::StrSplit(table, '\n', absl::SkipEmpty())) {
      row.notes.emplace_back(line);
    }
    row.checked = agreement.Describe("results");
    row.error = error;
    rows->push_back(std::move(row));
    return absl::OkStatus();
  }

 private:
  const Options options_;
};

}  // namespace

std::unique_ptr<Benchmark> MakeStages(const Options& options) {
  return std::make_unique<StagesBenchmark>(options);
}

}  // namespace djinn::bench
