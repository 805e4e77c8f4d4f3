// Runs random programs on the CPU and on an embedded cluster, and compares the
// results.
//
// Prints the base seed and, for every difference, the program's seed and the
// smallest program that still shows the difference. Exits with status 0 if
// there was no difference.
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "djinn/djinn.h"
#include "tests/bench/child_process.h"
#include "tests/random_programs/compose.h"
#include "tests/random_programs/oracle.h"
#include "tests/random_programs/remote_run.h"
#include "tests/random_programs/shrink.h"

ABSL_FLAG(
    uint64_t, seed, 1,
    "Seed of the first program; the next ones follow it. 0: a random one.");
ABSL_FLAG(int, programs, 1000, "How many programs to run.");
ABSL_FLAG(int, shards, 1, "Into how many parts the programs are divided.");
ABSL_FLAG(int, shard, 0, "Which part to run, from 0.");
ABSL_FLAG(absl::Duration, time_limit, absl::InfiniteDuration(),
          "Stops after this time, without an error.");
ABSL_FLAG(int, differences, 3, "Stops after so many differences.");
ABSL_FLAG(bool, same_messages, false,
          "Takes another text of PyTorch's error for a difference.");
ABSL_FLAG(std::string, mode, "strict",
          "strict, fast, or both: each program under one after the other.");
ABSL_FLAG(int, threads, 1, "Of the worker, and on the CPU.");
ABSL_FLAG(
    int, kill_every, 0,
    "Kills the worker in the midst of each so-many-th program, which goes "
    "on at another one. 0: never.");
ABSL_FLAG(bool, print, false, "Prints every program.");

namespace djinn::random_programs {
namespace {

// The number of programs after which the session is replaced.
constexpr int kProgramsPerSession = 100;
constexpr int kShrinkAttempts = 400;

struct Counts {
  uint64_t programs = 0;
  uint64_t steps = 0;
  uint64_t raising = 0;
  uint64_t root_errors = 0;
  uint64_t failing_programs = 0;
  uint64_t several_lanes = 0;
  std::map<std::string, uint64_t> names;

  void Add(const Program& program,
           const std::vector<Expectation>& expectations) {
    ++programs;
    several_lanes += program.lanes > 1;
    bool fails = false;
    for (size_t i = 0; i < program.steps.size(); ++i) {
      const Expectation& expected = expectations[i];
      if (expected.outcome == Expectation::Outcome::kSkipped) continue;
      ++steps;
      ++names[program.steps[i].name()];
      raising += expected.outcome == Expectation::Outcome::kRaises;
      root_errors += expected.fails;
      fails |= expected.fails;
    }
    failing_programs += fails;
  }
};

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::cerr << status << std::endl;
  std::exit(2);
}

// A cluster of three workers, in a process of its own.
class KillableCluster {
 public:
  KillableCluster() {
    auto started = bench::ChildProcess::Start(
        bench::SiblingProgram("killable_cluster"),
        {"3", absl::StrCat(absl::GetFlag(FLAGS_threads))});
    Require(started.status());
    process_ = *std::move(started);
    options_.coordinator = ReadLine();
    options_.token_file = ReadLine();
    // The environment may describe another cluster.
    options_.tls = TlsOptions();
  }

  const ConnectOptions& connect_options() const { return options_; }

  // Kills the worker, which starts again while the caller goes on.
  void Kill(const std::string& worker_id) {
    // One that is gone would not be missed.
    if (restarts_) Expect("restarted");
    restarts_ = true;
    // Workers are called worker-0, worker-1 and worker-2.
    Require(process_->WriteLine(worker_id.substr(worker_id.size() - 1)));
    Expect("killed");
  }

 private:
  // A child's line may take longer than ChildProcess waits.
  static constexpr int kWaits = 12;

  std::string ReadLine() {
    absl::StatusOr<std::string> line;
    for (int i = 0; i < kWaits; ++i) {
      line = process_->ReadLine();
      if (line.ok()) break;
    }
    Require(line.status());
    return *line;
  }
  void Expect(const std::string& expected) {
    const std::string line = ReadLine();
    if (line != expected) Require(absl::InternalError(line));
  }

  std::unique_ptr<bench::ChildProcess> process_;
  ConnectOptions options_;
  bool restarts_ = false;
};

// A cluster and a session on it, which are replaced when they become unusable.
class Cluster {
 public:
  void Renew() {
    (void)Close();
    if (absl::GetFlag(FLAGS_kill_every) > 0) {
      if (killable_ == nullptr) killable_ = std::make_unique<KillableCluster>();
      ConnectOptions options = killable_->connect_options();
      options.recovery = "replay";
      return Require(Connect(options));
    }
    if (cluster_ == nullptr) Start();
    ConnectOptions options = cluster_->connect_options();
    // A call that kills its worker is a finding.
    options.recovery = "off";
    Require(Connect(options));
  }
  // Starts a new cluster: the worker may be gone or in an unexpected state.
  void Restart() {
    (void)Close(absl::Seconds(5));
    cluster_.reset();
    killable_.reset();
    Renew();
  }
  ~Cluster() { (void)Close(); }

  // Kills the session's worker.
  void KillWorker() {
    const absl::StatusOr<Placement> place = WhereIs();
    Require(place.status());
    killable_->Kill(place->worker_id);
  }

 private:
  void Start() {
    EmbeddedClusterOptions options;
    options.worker_memory_bytes = uint64_t{1} << 30;
    options.worker_threads = absl::GetFlag(FLAGS_threads);
    auto started = EmbeddedCluster::Start(options);
    Require(started.status());
    cluster_ = *std::move(started);
  }
  std::unique_ptr<EmbeddedCluster> cluster_;
  std::unique_ptr<KillableCluster> killable_;
};

class Tester {
 public:
  explicit Tester(std::vector<ExecutionMode> modes) : modes_(std::move(modes)) {
    cluster_.Renew();
  }

  // Returns whether the program does the same on the CPU and on the cluster.
  bool Test(uint64_t seed) {
    if (counts_.programs % kProgramsPerSession == 0) cluster_.Renew();
    const Program program = Compose(seed);
    if (absl::GetFlag(FLAGS_print)) {
      std::cout << "seed " << seed << "\n" << Print(program) << std::endl;
    }
    std::vector<Expectation> expectations;
    std::optional<std::string> difference = Compare(program, &expectations);
    counts_.Add(program, expectations);
    if (!difference.has_value()) return true;
    std::cout << "seed " << seed << ": " << *difference << std::endl;
    std::optional<std::string> smallest = difference;
    const Program shrunk =
        Shrink(program, kShrinkAttempts, [&](const Program& smaller) {
          std::optional<std::string> found = Compare(smaller, &expectations);
          if (!found.has_value()) return false;
          smallest = std::move(found);
          return true;
        });
    std::cout << "shrunk to\n"
              << Print(shrunk) << *smallest << "\n"
              << std::endl;
    cluster_.Restart();
    return false;
  }

  const Counts& counts() const { return counts_; }
  const Tally& tally() const { return tally_; }
  uint64_t kills() const { return kills_; }

 private:
  std::optional<std::string> Compare(const Program& program,
                                     std::vector<Expectation>* expectations) {
    Oracle oracle(program, /*failures=*/true);
    expectations->clear();
    for (const Step& step : program.steps) {
      expectations->push_back(oracle.Apply(step));
    }
    const std::vector<FinalValue> final_values = oracle.Finish();
    std::optional<std::string> difference;
    const int kill_every = absl::GetFlag(FLAGS_kill_every);
    const bool kills = kill_every > 0 && program.seed % kill_every == 0;
    for (const ExecutionMode mode : modes_) {
      Comparison comparison = {
          .mode = mode, .same_messages = absl::GetFlag(FLAGS_same_messages)};
      if (kills && !program.steps.empty()) {
        // The seed decides the step, another one in each mode.
        std::mt19937_64 random(program.seed * 2 +
                               (mode == ExecutionMode::kFast));
        comparison.before_step =
            [this, at = random() % program.steps.size()](size_t step) {
              if (step != at) return;
              cluster_.KillWorker();
              ++kills_;
            };
      }
      difference = FindDifference(program, *expectations, final_values,
                                  comparison, &tally_);
      if (!difference.has_value()) continue;
      absl::StrAppend(&*difference, mode == ExecutionMode::kFast
                                        ? "\n  in fast mode"
                                        : "\n  in strict mode");
      break;
    }
    if (difference.has_value() &&
        (absl::StrContains(*difference, "WORKER_LOST") ||
         absl::StrContains(*difference, "DEADLINE"))) {
      cluster_.Restart();
    }
    return difference;
  }

  const std::vector<ExecutionMode> modes_;
  Cluster cluster_;
  Counts counts_;
  Tally tally_;
  uint64_t kills_ = 0;
};

std::vector<ExecutionMode> Modes() {
  const std::string mode = absl::GetFlag(FLAGS_mode);
  if (mode == "strict") return {ExecutionMode::kStrict};
  if (mode == "fast") return {ExecutionMode::kFast};
  if (mode == "both") return {ExecutionMode::kStrict, ExecutionMode::kFast};
  std::cerr << "--mode must be strict, fast or both, not " << mode << std::endl;
  std::exit(2);
}

int Main() {
  // The CPU and the worker use the same number of threads, so that sums have
  // the same order.
  at::set_num_threads(absl::GetFlag(FLAGS_threads));
  // Turns off repeated warnings about outputs that are resized.
  c10::WarningUtils::set_warnAlways(false);
  uint64_t seed = absl::GetFlag(FLAGS_seed);
  if (seed == 0) seed = std::random_device()();
  std::cout << "base seed " << seed << ", mode " << absl::GetFlag(FLAGS_mode)
            << ", " << absl::GetFlag(FLAGS_threads) << " threads" << std::endl;
  const absl::Time start = absl::Now();
  Tester tester(Modes());
  int differences = 0;
  const int64_t programs = absl::GetFlag(FLAGS_programs);
  const int64_t shards = absl::GetFlag(FLAGS_shards);
  const int64_t shard = absl::GetFlag(FLAGS_shard);
  for (int64_t i = programs * shard / shards;
       i < programs * (shard + 1) / shards; ++i) {
    if (absl::Now() - start > absl::GetFlag(FLAGS_time_limit)) break;
    if (!tester.Test(seed + i) &&
        ++differences >= absl::GetFlag(FLAGS_differences)) {
      break;
    }
  }
  const Counts& counts = tester.counts();
  for (const auto& [name, count] : counts.names) {
    std::cout << name << " " << count << "  ";
  }
  std::cout << "\n"
            << counts.programs << " programs (" << counts.several_lanes
            << " with several lanes, " << counts.failing_programs
            << " with failing nodes), " << counts.steps << " steps, "
            << counts.names.size() << " operators, " << counts.raising
            << " errors at the call, " << counts.root_errors
            << " failed nodes, " << tester.tally().calls
            << " calls of callables, " << tester.tally().replays
            << " of them replays (" << tester.tally().replays_with_parameters
            << " with parameters, " << tester.tally().replays_with_gradients
            << " with gradients), " << tester.tally().other_sums
            << " values of sums in another order, " << tester.tally().left_out
            << " programs left there, " << tester.kills() << " workers killed, "
            << differences << " differences, "
            << absl::FormatDuration(
                   absl::Trunc(absl::Now() - start, absl::Milliseconds(100)))
            << std::endl;
  if (absl::GetFlag(FLAGS_kill_every) > 0 && tester.kills() == 0) {
    std::cerr << "no worker was killed" << std::endl;
    return 2;
  }
  return differences == 0 ? 0 : 1;
}

}  // namespace
}  // namespace djinn::random_programs

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return djinn::random_programs::Main();
}
