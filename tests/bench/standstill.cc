// Warm requests while the coordinator does not run: nothing on their way goes
// through it.
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/add.h"
#include "ATen/ops/full.h"
#include "ATen/ops/mm.h"
#include "ATen/ops/relu.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "c10/core/InferenceMode.h"
#include "common/status_macros.h"
#include "djinn/djinn.h"
#include "tests/bench/benchmark.h"
#include "tests/bench/check.h"
#include "tests/bench/stopwatch.h"
#include "tests/bench/tenant_cluster.h"

namespace djinn::bench {
namespace {

constexpr int kRequests = 500;
constexpr int64_t kWidth = 64;
// Of the time with a coordinator that runs.
constexpr double kMaxRatio = 1.25;
// One round may be the machine's worst moment.
constexpr int kRoundsToJudge = 5;

// Its state, as Linux has it: 'T' is stopped.
char StateOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  return name_end + 2 < line.size() ? line[name_end + 2] : '?';
}

// As long as it lives, the process gets no processor.
class Standstill {
 public:
  explicit Standstill(pid_t pid) : pid_(pid) {
    kill(pid_, SIGSTOP);
    for (int i = 0; i < 1000 && StateOf(pid_) != 'T'; ++i) {
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
  ~Standstill() { kill(pid_, SIGCONT); }
  Standstill(const Standstill&) = delete;
  Standstill& operator=(const Standstill&) = delete;

 private:
  const pid_t pid_;
};

class StandstillBenchmark : public Benchmark {
 public:
  explicit StandstillBenchmark(const Options& options) : options_(options) {}

  absl::string_view name() const override { return "standstill"; }
  bool needs_session() const override { return false; }

  absl::Status Measure(std::vector<Row>* rows) override {
    DJINN_ASSIGN_OR_RETURN(
        const auto cluster,
        TenantCluster::Start(
            {.tenants = {"asks"},
             .of_tenants = "limits: {memory: 2GiB}",
             .of_worker = absl::StrCat("device: {kind: cpu, memory: 6GiB, "
                                       "calibrate: false, threads: ",
                                       options_.threads, "}\n")}));
    ConnectOptions connect;
    connect.coordinator = cluster->coordinator();
    connect.token_file = cluster->token_file("asks");
    DJINN_RETURN_IF_ERROR(Connect(connect));
    const absl::Status measured = MeasureBoth(*cluster, rows);
    const absl::Status closed = Close();
    return measured.ok() ? closed : measured;
  }

 private:
  absl::Status MeasureBoth(const TenantCluster& cluster,
                           std::vector<Row>* rows) {
    const c10::InferenceMode inference;
    const at::Tensor weight = at::full({kWidth, kWidth}, 0.25);
    const at::Tensor remote_weight = weight.to(Device());
    Agreement agreement;
    double number = 0;
    // A product, a sum and a read each, of another input every time.
    const auto request = [&](Series* series) {
      std::vector<double> seconds;
      for (int i = 0; i < kRequests; ++i) {
        const at::Tensor input = at::full({kWidth, kWidth}, ++number);
        const double start = WallNow();
        const at::Tensor result =
            at::relu(at::add(at::mm(input.to(Device()), remote_weight), 1))
                .to(at::kCPU);
        seconds.push_back(WallNow() - start);
        agreement.Add(at::relu(at::add(at::mm(input, weight), 1)), result);
      }
      if (series != nullptr) series->AddRound(std::move(seconds));
    };
    Row row;
    row.benchmark = std::string(name());
    DJINN_ASSIGN_OR_RETURN(const std::string transport, Transport());
    row.variant =
        absl::StrCat("request and read, coordinator stopped, ", transport);
    row.baseline_name = "the same while it runs";
    row.djinn.emplace();
    row.baseline.emplace();
    request(nullptr);
    double longest = 0;
    DJINN_RETURN_IF_ERROR(Interleave(
        options_.rounds,
        [&](int) {
          const pid_t coordinator = cluster.coordinator_pid();
          const Standstill standstill(coordinator);
          const double start = WallNow();
          request(&*row.djinn);
          longest = std::max(longest, WallNow() - start);
          return StateOf(coordinator) == 'T'
                     ? absl::OkStatus()
                     : absl::InternalError("the coordinator did not stop");
        },
        [&](int) {
          request(&*row.baseline);
          return absl::OkStatus();
        }));
    SetRatio(&row);
    row.numbers["longest_standstill"] = longest;
    row.notes.push_back(
        absl::StrFormat("it stood still for %.2f s at the longest", longest));
    row.checked = agreement.Describe("results");
    agreement.ExpectWithin(0, "results", &row.error);
    if (row.error.empty() && options_.rounds >= kRoundsToJudge &&
        row.ratio->median > kMaxRatio) {
      row.error =
          absl::StrFormat("requests take %.2f times as long, not %.2f at most",
                          row.ratio->median, kMaxRatio);
    }
    rows->push_back(std::move(row));
    return absl::OkStatus();
  }

  const Options options_;
};

}  // namespace

std::unique_ptr<Benchmark> MakeStandstill(const Options& options) {
  return std::make_unique<StandstillBenchmark>(options);
}

}  // namespace djinn::bench
