// Measures the start of a program with a model that the worker already has. The
// cases are a second process, a second tenant that shares contents, and a
// worker that was killed and restarted with its disk. Each is compared with the
// first start of the same model.

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "absl/memory/memory.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "djinn/djinn.h"
#include "tests/bench/benchmark.h"
#include "tests/bench/check.h"
#include "tests/bench/child_process.h"
#include "tests/bench/floors.h"
#include "tests/bench/report.h"
#include "tests/bench/statistics.h"
#include "tests/bench/tenant_cluster.h"

namespace djinn::bench {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxRounds = 5;
constexpr int kModelMebibytes = 256;
// A weight, and a bias that is just too large for a message.
constexpr size_t kWeightBytes = size_t{16} << 20;
constexpr size_t kBiasBytes = 96 << 10;
constexpr char kMemory[] = "shared memory";

struct Start {
  double seconds = 0;
  uint64_t bytes_up = 0;
  uint64_t sent = 0;
  uint64_t held = 0;
  int64_t result = 0;
};

// A coordinator with two tenants that share contents, and a worker with a disk.
class TwoTenants {
 public:
  static absl::StatusOr<std::unique_ptr<TwoTenants>> Start(
      const Options& options) {
    DJINN_ASSIGN_OR_RETURN(
        auto cluster,
        TenantCluster::Start(
            {.tenants = {"a", "b"},
             .of_tenants = "share_contents: true, limits: {memory: 4GiB}",
             .of_worker = absl::StrCat(
                 "device: {kind: cpu, memory: 8GiB, calibrate: false, "
                 "threads: ",
                 options.threads,
                 "}\ncontent_disk: {directory: contents, limit: 8GiB}\n")}));
    auto started = absl::WrapUnique(new TwoTenants(std::move(cluster)));
    DJINN_RETURN_IF_ERROR(started->AwaitReady());
    return started;
  }

  // Starts the worker again.
  absl::Status RestartWorker() {
    DJINN_RETURN_IF_ERROR(cluster_->StartWorker());
    return AwaitReady();
  }

  // Runs LoadModel() in a process of its own.
  absl::StatusOr<bench::Start> Load(const std::string& tenant,
                                    const std::string& transport, uint64_t seed,
                                    int mebibytes) const {
    DJINN_ASSIGN_OR_RETURN(
        const auto process,
        ChildProcess::Start(
            OwnProgram(),
            {kLoadModel, cluster_->coordinator(), cluster_->token_file(tenant),
             transport, absl::StrCat(seed), absl::StrCat(mebibytes)}));
    DJINN_ASSIGN_OR_RETURN(const std::string line,
                           ReadLinePatiently(process.get()));
    bench::Start start;
    std::istringstream words(line);
    if (!(words >> start.seconds >> start.bytes_up >> start.sent >>
          start.held >> start.result)) {
      return absl::InternalError(line);
    }
    DJINN_RETURN_IF_ERROR(process->Wait());
    return start;
  }

  // Returns the number of whole contents on disk.
  size_t Kept() const {
    size_t files = 0;
    std::error_code ignored;
    for (const auto& entry :
         fs::recursive_directory_iterator(contents(), ignored)) {
      const fs::path name = entry.path().filename();
      files += entry.is_regular_file(ignored) && name != "lock" &&
               name.extension() != ".part";
    }
    return files;
  }
  void ForgetKept() const {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(contents(), ignored)) {
      if (entry.is_directory()) fs::remove_all(entry.path(), ignored);
    }
  }

 private:
  explicit TwoTenants(std::unique_ptr<TenantCluster> cluster)
      : cluster_(std::move(cluster)) {}
  absl::Status AwaitReady() const {
    absl::Status last;
    for (int i = 0; i < 30; ++i) {
      last = Load("a", kMemory, 0, 0).status();
      if (last.ok()) break;
      absl::SleepFor(absl::Milliseconds(200));
    }
    return last;
  }
  fs::path contents() const { return cluster_->folder() / "contents"; }

  const std::unique_ptr<TenantCluster> cluster_;
};

class SecondStartBenchmark : public Benchmark {
 public:
  explicit SecondStartBenchmark(const Options& options)
      : options_(options), rounds_(std::min(options.rounds, kMaxRounds)) {}

  absl::string_view name() const override { return "second_start"; }
  bool needs_session() const override { return false; }

  absl::Status Measure(std::vector<Row>* rows) override {
    DJINN_ASSIGN_OR_RETURN(cluster_, TwoTenants::Start(options_));
    for (const char* transport : {kMemory, "gRPC"}) {
      measured_.clear();
      error_.clear();
      DJINN_RETURN_IF_ERROR(MeasureRounds(
          rounds_, [&](int round) { return MeasureRound(transport, round); }));
      for (const char* which :
           {"second process", "second tenant", "restarted worker"}) {
        AddRow(which, transport, rows);
      }
    }
    cluster_.reset();
    return absl::OkStatus();
  }

 private:
  struct Measured {
    Series seconds;
    double bytes_up = 0;
  };

  absl::Status MeasureRound(const std::string& transport, int round) {
    // The seed of a model that no worker has.
    const uint64_t seed = ++models_ * 1000;
    DJINN_ASSIGN_OR_RETURN(const Start first,
                           Take("first", "a", transport, seed));
    ExpectAtLeast("bytes up of the first start", first.bytes_up,
                  uint64_t{kModelMebibytes} << 20, &error_);
    const auto again = [&](const char* which,
                           const char* tenant) -> absl::Status {
      DJINN_ASSIGN_OR_RETURN(const Start start,
                             Take(which, tenant, transport, seed));
      ExpectAtMost(absl::StrCat("bytes up of ", which), start.bytes_up,
                   first.bytes_up / 100, &error_);
      ExpectAtMost(absl::StrCat("uploads sent of ", which), start.sent, 0,
                   &error_);
      if (start.result != first.result) {
        error_ = absl::StrCat(which, " computed something else");
      }
      return absl::OkStatus();
    };
    DJINN_RETURN_IF_ERROR(again("second process", "a"));
    DJINN_RETURN_IF_ERROR(again("second tenant", "b"));
    // The second tenant's contents are in use for too short a time to be kept.
    for (int i = 0; i < 300 && cluster_->Kept() < first.sent; ++i) {
      absl::SleepFor(absl::Milliseconds(100));
    }
    DJINN_RETURN_IF_ERROR(cluster_->RestartWorker());
    DJINN_RETURN_IF_ERROR(again("restarted worker", "a"));
    // The next round has other contents.
    cluster_->ForgetKept();
    return cluster_->RestartWorker();
  }

  absl::StatusOr<Start> Take(const std::string& which,
                             const std::string& tenant,
                             const std::string& transport, uint64_t seed) {
    Settle();
    DJINN_ASSIGN_OR_RETURN(
        const Start start,
        cluster_->Load(tenant, transport, seed, kModelMebibytes));
    measured_[which].seconds.AddRound({start.seconds});
    measured_[which].bytes_up = static_cast<double>(start.bytes_up);
    return start;
  }

  void AddRow(const std::string& which, const std::string& transport,
              std::vector<Row>* rows) {
    Row row;
    row.benchmark = std::string(name());
    row.variant =
        absl::StrFormat("%s, %d MiB, %s", which, kModelMebibytes, transport);
    row.djinn = measured_[which].seconds;
    row.baseline_name = "the first start of the model";
    row.baseline = measured_["first"].seconds;
    SetRatio(&row);
    row.numbers["bytes_up"] = measured_[which].bytes_up;
    row.numbers["bytes_up_first"] = measured_["first"].bytes_up;
    row.notes.push_back(absl::StrFormat(
        "%s up, %s at first", FormatBytes(measured_[which].bytes_up),
        FormatBytes(measured_["first"].bytes_up)));
    row.checked = absl::StrCat(rounds_, " models, equal results");
    row.error = error_;
    rows->push_back(std::move(row));
  }

  const Options options_;
  const int rounds_;
  std::unique_ptr<TwoTenants> cluster_;
  uint64_t models_ = 0;
  std::map<std::string, Measured> measured_;
  std::string error_;
};

absl::StatusOr<Start> LoadModel(const std::string& coordinator,
                                const std::string& token_file,
                                const std::string& transport, uint64_t seed,
                                int mebibytes) {
  std::vector<at::Tensor> model;
  const auto add = [&](size_t bytes) {
    model.push_back(at::empty({static_cast<int64_t>(bytes)}, at::kByte));
    Fill(seed + model.size(), model.back().mutable_data_ptr(), bytes);
  };
  const size_t layers = (static_cast<size_t>(mebibytes) << 20) / kWeightBytes;
  for (size_t layer = 0; layer < layers; ++layer) {
    add(kWeightBytes);
    add(kBiasBytes);
  }
  add(64);
  ConnectOptions options;
  options.coordinator = coordinator;
  options.token_file = token_file;
  options.shared_memory = transport == kMemory;
  Start start;
  const double begin = WallNow();
  DJINN_RETURN_IF_ERROR(Connect(options));
  std::vector<at::Tensor> remote;
  for (const at::Tensor& tensor : model) {
    remote.push_back(tensor.to(Device()));
  }
  start.result = remote.back().sum().item<int64_t>();
  start.seconds = WallNow() - begin;
  const Statistics statistics = GetStatistics();
  start.bytes_up = statistics.bytes_up;
  start.sent = statistics.uploads_sent;
  start.held = statistics.uploads_already_held;
  // Sums all tensors, in addition.
  for (size_t i = 0; i < model.size(); ++i) {
    start.result += remote[i].sum().item<int64_t>();
    const at::Tensor back = remote[i].to(at::kCPU);
    if (!IsFilled(seed + i + 1, back.const_data_ptr(), back.nbytes())) {
      return absl::DataLossError("other bytes came back");
    }
  }
  // A program that continues keeps the tensors in use.
  if (start.sent > 0) absl::SleepFor(absl::Seconds(2));
  remote.clear();
  DJINN_RETURN_IF_ERROR(Close());
  return start;
}

}  // namespace

int LoadModel(int argc, char** argv) {
  uint64_t seed = 0;
  int mebibytes = 0;
  if (argc != 5 || !absl::SimpleAtoi(argv[3], &seed) ||
      !absl::SimpleAtoi(argv[4], &mebibytes)) {
    return 2;
  }
  const absl::StatusOr<Start> start =
      LoadModel(argv[0], argv[1], argv[2], seed, mebibytes);
  if (!start.ok()) {
    std::cout << start.status() << std::endl;
    return 1;
  }
  std::cout << start->seconds << " " << start->bytes_up << " " << start->sent
            << " " << start->held << " " << start->result << std::endl;
  return 0;
}

std::unique_ptr<Benchmark> MakeSecondStart(const Options& options) {
  return std::make_unique<SecondStartBenchmark>(options);
}

}  // namespace djinn::bench
