// Measures the cost of an operator call for the program, on the calling thread
// and in total, beside the same call on the CPU.
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "djinn/djinn.h"
#include "tests/bench/benchmark.h"
#include "tests/bench/check.h"
#include "tests/bench/statistics.h"
#include "tests/bench/workloads.h"

namespace djinn::bench {
namespace {

constexpr double kTolerance = 1e-4;

// Seconds per call, in rounds.
struct ChainSeries {
  Series issuing;  // Processor time of the thread that makes the calls.
  Series drained;  // Wall time until the last result is read.
  Series sender;   // Processor time of the process' other threads until then.
};

struct Local {
  int threads = 0;
  ChainSeries series;
};

// Runs a chain once and adds its times. Returns the last result, on the CPU.
at::Tensor RunOnce(const Chain& chain, const ChainOperands& operands,
                   const at::Tensor& start, int round, ChainSeries* series) {
  const Times begun = Now();
  const at::Tensor last = chain.run(start, operands, round);
  const Times issued = Now();
  at::Tensor result = last.to(at::kCPU);
  const Times drained = Now();
  result = result.detach();
  series->issuing.AddRound({(issued - begun).thread_cpu / kChainSteps});
  series->drained.AddRound({(drained - begun).wall / kChainSteps});
  series->sender.AddRound(
      {(drained - begun).other_threads_cpu() / kChainSteps});
  return result;
}

class CaptureAndShipBenchmark : public Benchmark {
 public:
  explicit CaptureAndShipBenchmark(const Options& options)
      : options_(options),
        local_{MakeChainOperands(at::kCPU, false),
               MakeChainOperands(at::kCPU, true)} {}

  absl::string_view name() const override { return "capture_and_ship"; }

  // Measures with one thread and with several threads. The faster run is the
  // baseline, because some operators use several threads even for so few
  // values.
  absl::Status MeasureAlone() override {
    for (const auto& [gradients, chain] : Measured()) {
      Local& best = alone_[{gradients, chain.op}];
      const ChainOperands& operands = local_[gradients];
      const auto start = [gradients = gradients](int round) {
        return MakeChainStart(round, at::kCPU, gradients);
      };
      for (const int threads : {1, options_.threads}) {
        at::set_num_threads(threads);
        ChainSeries series, ignored;
        RunOnce(chain, operands, start(-1), -1, &ignored);
        DJINN_RETURN_IF_ERROR(MeasureRounds(options_.rounds, [&](int round) {
          RunOnce(chain, operands, start(round), round, &series);
          return absl::OkStatus();
        }));
        if (best.threads == 0 ||
            Median(series.drained.RoundMedians()) <
                Median(best.series.drained.RoundMedians())) {
          best = {threads, std::move(series)};
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status Measure(std::vector<Row>* rows) override {
    for (const bool gradients : {false, true}) {
      remote_ = MakeChainOperands(Device(), gradients);
      std::vector<Row> issuing, drained;
      for (const auto& [of_gradients, chain] : Measured()) {
        if (of_gradients != gradients) continue;
        DJINN_RETURN_IF_ERROR(MeasureChain(chain, rows, &issuing, &drained));
      }
      const std::string of = gradients ? "gradients, " : "";
      AddMean(of + "issuing CPU", issuing, rows);
      AddMean(of + "drained wall", drained, rows);
    }
    return absl::OkStatus();
  }

 private:
  // Returns chains without and with gradients. Views make no calls either way.
  static std::vector<std::pair<bool, Chain>> Measured() {
    std::vector<std::pair<bool, Chain>> measured;
    for (const bool gradients : {false, true}) {
      for (const Chain& chain : Chains()) {
        if (!gradients || !chain.is_view) {
          measured.emplace_back(gradients, chain);
        }
      }
    }
    return measured;
  }

  absl::Status MeasureChain(const Chain& chain, std::vector<Row>* rows,
                            std::vector<Row>* issuing,
                            std::vector<Row>* drained) {
    const bool gradients = remote_.gradients;
    const Local& local = alone_[{gradients, chain.op}];
    at::set_num_threads(local.threads);
    ChainSeries djinn, beside, ignored;
    std::map<int, at::Tensor> results, expected;
    std::string error;
    uint64_t bytes_up = 0, bytes_down = 0;

    const auto run_remote = [&](int round, ChainSeries* series) {
      const at::Tensor start = MakeChainStart(round, Device(), gradients);
      DJINN_RETURN_IF_ERROR(Synchronize());
      const Statistics before = GetStatistics();
      results[round] = RunOnce(chain, remote_, start, round, series);
      const Statistics delta = GetStatistics() - before;
      bytes_up += delta.bytes_up;
      bytes_down += delta.bytes_down;
      CheckTraffic(chain, delta, &error);
      return absl::OkStatus();
    };
    const auto run_local = [&](int round, ChainSeries* series) {
      expected[round] =
          RunOnce(chain, local_[gradients],
                  MakeChainStart(round, at::kCPU, gradients), round, series);
      return absl::OkStatus();
    };
    DJINN_RETURN_IF_ERROR(run_remote(-1, &ignored));
    DJINN_RETURN_IF_ERROR(run_local(-1, &ignored));
    bytes_up = bytes_down = 0;
    DJINN_RETURN_IF_ERROR(Interleave(
        options_.rounds, [&](int round) { return run_remote(round, &djinn); },
        [&](int round) { return run_local(round, &beside); }));

    Agreement agreement;
    for (const auto& [round, result] : results) {
      agreement.Add(expected.at(round), result);
    }
    Row row;
    row.benchmark = std::string(name());
    row.checked = agreement.Describe("chains");
    agreement.ExpectWithin(kTolerance, "chains", &error);
    row.error = error;
    row.baseline_name = absl::StrCat(
        "local eager ", gradients ? "with gradients" : "in inference mode",
        ", threads: ", local.threads);
    const double calls = static_cast<double>(kChainSteps) * options_.rounds;
    row.numbers["bytes_up_per_call"] = static_cast<double>(bytes_up) / calls;
    row.numbers["bytes_down_per_call"] =
        static_cast<double>(bytes_down) / calls;

    const std::string label =
        absl::StrCat(chain.op, gradients ? ", gradients" : "");
    AddRow(row, absl::StrCat(label, ": issuing CPU"), djinn.issuing,
           beside.issuing, local.series.issuing, rows);
    if (!chain.is_view) issuing->push_back(rows->back());
    AddRow(row, absl::StrCat(label, ": drained wall"), djinn.drained,
           beside.drained, local.series.drained, rows);
    if (!chain.is_view) drained->push_back(rows->back());
    // The local run has no sender, so the cost of Djinn's is reported as it is.
    row.variant = absl::StrCat(label, ": sender CPU");
    row.notes.push_back(
        absl::StrFormat("%.1f B up a call", row.numbers["bytes_up_per_call"]));
    row.baseline_name.clear();
    row.djinn = djinn.sender;
    rows->push_back(std::move(row));
    return absl::OkStatus();
  }

  // A chain has a fixed number of calls and one small read. Views do not count.
  static void CheckTraffic(const Chain& chain, const Statistics& delta,
                           std::string* error) {
    ExpectAtMost("synchronous calls", delta.synchronous_calls, 0, error);
    ExpectAtLeast("reads", delta.reads, 1, error);
    ExpectAtMost("reads", delta.reads, 1, error);
    ExpectAtLeast("bytes down", delta.bytes_down, kChainBytes, error);
    if (chain.is_view) {
      ExpectAtMost("calls of views", delta.calls, 1, error);
      return;
    }
    ExpectAtLeast("calls", delta.calls, kChainSteps, error);
    // Every add has another scale, which must cross the wire.
    const bool scaled = absl::string_view(chain.op) == "add";
    ExpectAtLeast("bytes up", delta.bytes_up,
                  scaled ? kChainSteps * sizeof(double) : 1, error);
  }

  static void AddRow(Row row, std::string variant, Series djinn, Series beside,
                     Series alone, std::vector<Row>* rows) {
    row.variant = std::move(variant);
    row.djinn = std::move(djinn);
    row.baseline = std::move(beside);
    row.baseline_alone = std::move(alone);
    SetRatio(&row);
    rows->push_back(std::move(row));
  }

  static void AddMean(const std::string& variant, const std::vector<Row>& of,
                      std::vector<Row>* rows) {
    std::vector<const Row*> pointers;
    for (const Row& row : of) pointers.push_back(&row);
    Row mean = GeometricMeanRow(pointers);
    mean.variant = absl::StrCat("geometric mean: ", variant);
    rows->push_back(std::move(mean));
  }

  const Options options_;
  // Operands without and with gradients.
  const ChainOperands local_[2];
  ChainOperands remote_;
  // Keyed by gradients and operator.
  std::map<std::pair<bool, std::string>, Local> alone_;
};

}  // namespace

std::unique_ptr<Benchmark> MakeCaptureAndShip(const Options& options) {
  return std::make_unique<CaptureAndShipBenchmark>(options);
}

}  // namespace djinn::bench
