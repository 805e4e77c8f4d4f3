// The worker's graph cache: a look-up, what a structure costs that it does not
// have, and how often that happens.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "tests/bench/benchmark.h"
#include "tests/bench/child_process.h"

namespace djinn::bench {
namespace {

constexpr int kLookUps = 200'000;
constexpr int kNodes = 500;
constexpr int kAdmissionsPerRound = 10;
// The worker's own limit, and one that does not hold everything.
constexpr int kPlaces[] = {4096, 256};

// Has the other program do something.
class Peer {
 public:
  static absl::StatusOr<Peer> Start() {
    Peer peer;
    DJINN_ASSIGN_OR_RETURN(
        peer.process_, ChildProcess::Start(SiblingProgram("plan_peer"), {}));
    return peer;
  }

  absl::StatusOr<std::vector<double>> Ask(absl::string_view what, int number) {
    DJINN_RETURN_IF_ERROR(process_->WriteLine(absl::StrCat(what, " ", number)));
    DJINN_ASSIGN_OR_RETURN(const std::string line, process_->ReadLine());
    std::vector<double> numbers;
    for (const absl::string_view word : absl::StrSplit(line, ' ')) {
      if (!absl::SimpleAtod(word, &numbers.emplace_back())) {
        return absl::InternalError(line);
      }
    }
    return numbers;
  }

 private:
  std::unique_ptr<ChildProcess> process_;
};

class TimedBenchmark : public Benchmark {
 public:
  TimedBenchmark(const Options& options, std::string command, int number,
                 int samples, std::string variant, std::string checked)
      : options_(options),
        command_(std::move(command)),
        number_(number),
        samples_(samples),
        variant_(std::move(variant)),
        checked_(std::move(checked)) {}

  absl::string_view name() const override { return command_; }
  bool needs_session() const override { return false; }

  absl::Status Measure(std::vector<Row>* rows) override {
    DJINN_ASSIGN_OR_RETURN(Peer peer, Peer::Start());
    DJINN_RETURN_IF_ERROR(peer.Ask(command_, number_).status());
    Series series;
    for (int round = 0; round < options_.rounds; ++round) {
      series.StartRound();
      for (int i = 0; i < samples_; ++i) {
        DJINN_ASSIGN_OR_RETURN(const std::vector<double> seconds,
                               peer.Ask(command_, number_));
        series.Add(seconds.front());
      }
    }
    Row row;
    row.benchmark = command_;
    row.variant = variant_;
    row.djinn = std::move(series);
    row.checked = checked_;
    rows->push_back(std::move(row));
    return absl::OkStatus();
  }

 private:
  const Options options_;
  const std::string command_;
  const int number_;
  const int samples_;
  const std::string variant_;
  const std::string checked_;
};

class HitRateBenchmark : public Benchmark {
 public:
  absl::string_view name() const override { return "hit_rate"; }
  bool needs_session() const override { return false; }

  absl::Status Measure(std::vector<Row>* rows) override {
    DJINN_ASSIGN_OR_RETURN(Peer peer, Peer::Start());
    for (const int places : kPlaces) {
      DJINN_ASSIGN_OR_RETURN(const std::vector<double> counts,
                             peer.Ask("hit_rate", places));
      if (counts.size() != 4) return absl::InternalError("not four counts");
      const double rate = counts[2] / counts[0];
      const double optimal = counts[3] / counts[0];
      Row row;
      row.benchmark = std::string(name());
      row.variant = absl::StrCat("mixed trace, ", places, " plans");
      row.numbers["hit_rate"] = rate;
      row.numbers["optimal_hit_rate"] = optimal;
      row.notes.push_back(absl::StrFormat(
          "%.2f%% of %.0f runs of %.0f structures hit; the optimal policy: "
          "%.2f%%",
          100 * rate, counts[0], counts[1], 100 * optimal));
      row.checked = "every structure found is the one asked for";
      if (rate > optimal) row.error = "more hits than there can be";
      rows->push_back(std::move(row));
    }
    return absl::OkStatus();
  }
};

}  // namespace

std::unique_ptr<Benchmark> MakePlanLookup(const Options& options) {
  return std::make_unique<TimedBenchmark>(options, "plan_lookup", kLookUps, 1,
                                          "by fingerprint, among 1,000 plans",
                                          "each was there");
}

std::unique_ptr<Benchmark> MakeAdmission(const Options& options) {
  return std::make_unique<TimedBenchmark>(
      options, "admission", kNodes, kAdmissionsPerRound,
      absl::StrCat(kNodes, " nodes, decoding to plan"), "steps of the plan");
}

std::unique_ptr<Benchmark> MakeHitRate(const Options&) {
  return std::make_unique<HitRateBenchmark>();
}

}  // namespace djinn::bench
