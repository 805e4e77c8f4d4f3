// Measures how long a program waits for its first result: starting a cluster,
// opening a session, running the first operator.
#include <signal.h>
#include <sys/types.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/equal.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "djinn/djinn.h"
#include "tests/bench/benchmark.h"
#include "tests/bench/child_process.h"
#include "tests/bench/statistics.h"

namespace djinn::bench {
namespace {

// Starting a cluster takes a second or two.
constexpr int kMaxRounds = 5;

class StartupBenchmark : public Benchmark {
 public:
  explicit StartupBenchmark(const Options& options)
      : options_(options), rounds_(std::min(options.rounds, kMaxRounds)) {}

  absl::string_view name() const override { return "startup"; }
  bool needs_session() const override { return false; }

  absl::Status Measure(std::vector<Row>* rows) override {
    DJINN_RETURN_IF_ERROR(Interleave(
        rounds_, [this](int round) { return MeasureCluster(round); },
        [this](int) { return MeasureLoad(); }));

    Row row = MakeRow("cluster", std::move(cluster_));
    row.checked = absl::StrCat(rounds_, " clusters, no process left");
    row.baseline_name = "a process that loads torch and ends";
    row.baseline = std::move(load_);
    SetRatio(&row);
    rows->push_back(std::move(row));

    row = MakeRow("first session, op and read", std::move(first_));
    row.checked = absl::StrCat(rounds_, " results");
    rows->push_back(row);
    row = MakeRow("next session, op and read", std::move(next_));
    row.checked = absl::StrCat(rounds_, " results");
    rows->push_back(std::move(row));
    return absl::OkStatus();
  }

 private:
  Row MakeRow(std::string variant, Series djinn) const {
    Row row;
    row.benchmark = std::string(name());
    row.variant = std::move(variant);
    row.djinn = std::move(djinn);
    row.error = error_;
    return row;
  }

  absl::Status MeasureCluster(int round) {
    double start = WallNow();
    DJINN_ASSIGN_OR_RETURN(auto cluster,
                           EmbeddedCluster::Start(ClusterOptions(options_)));
    cluster_.AddRound({WallNow() - start});
    std::vector<pid_t> pids = cluster->worker_pids();
    pids.push_back(cluster->coordinator_pid());

    for (Series* series : {&first_, &next_}) {
      start = WallNow();
      DJINN_RETURN_IF_ERROR(Connect(cluster->connect_options()));
      const at::Tensor result =
          (at::arange(4).to(Device()) + round).to(at::kCPU);
      series->AddRound({WallNow() - start});
      if (!at::equal(result, at::arange(4) + round)) {
        error_ = "a first result is wrong";
      }
      DJINN_RETURN_IF_ERROR(Close());
    }
    cluster.reset();
    for (const pid_t pid : pids) {
      if (kill(pid, 0) == 0) error_ = "a process outlived its cluster";
    }
    return absl::OkStatus();
  }

  absl::Status MeasureLoad() {
    const double start = WallNow();
    DJINN_ASSIGN_OR_RETURN(const auto child,
                           ChildProcess::Start(OwnProgram(), {"--load_only"}));
    DJINN_RETURN_IF_ERROR(child->Wait());
    load_.AddRound({WallNow() - start});
    return absl::OkStatus();
  }

  const Options options_;
  const int rounds_;
  Series cluster_, first_, next_, load_;
  std::string error_;
};

}  // namespace

std::unique_ptr<Benchmark> MakeStartup(const Options& options) {
  return std::make_unique<StartupBenchmark>(options);
}

}  // namespace djinn::bench
