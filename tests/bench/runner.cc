// Runs all benchmarks, or the named ones:
//
//   runner [--json=FILE] [--rounds=N] [NAME...]
//
// Prints a table, and writes the table's data and further data as JSON. Exits
// with status 1 if a benchmark failed or had a wrong output, and 2 for wrong
// arguments.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "c10/util/Exception.h"
#include "common/base/status_macros.h"
#include "djinn/djinn.h"
#include "tests/bench/benchmark.h"
#include "tests/bench/child_process.h"
#include "tests/bench/machine.h"
#include "tests/bench/report.h"

ABSL_FLAG(std::string, json, "",
          "file to write; empty for a new one among the temporary files");
ABSL_FLAG(int, rounds, 9, "how often each measurement is repeated");
ABSL_FLAG(int, threads, 2, "of the worker and of local runs");
ABSL_FLAG(std::string, device, "cpu",
          "what the worker computes on: cpu, or cuda:N. Then local runs of "
          "encoder and decode do, too");
ABSL_FLAG(int, sessions, 3000, "that idle_sessions opens");
ABSL_FLAG(int, workers, 1, "of idle_sessions");
ABSL_FLAG(std::string, model_dir, "",
          "folder of the sentence encoder; empty for the one built in");

namespace djinn::bench {
namespace {

struct Entry {
  const char* name;
  std::unique_ptr<Benchmark> (*make)(const Options& options);
};

// Listed in the order in which they run.
constexpr Entry kBenchmarks[] = {
    {"ping_pong", MakePingPong},
    {"idle_sessions", MakeIdleSessions},
    {"stages", MakeStages},
    {"capture_and_ship", MakeCaptureAndShip},
    {"read_back", MakeReadBack},
    {"encoder", MakeEncoder},
    {"decode", MakeDecode},
    {"mlp_step", MakeMlpStep},
    {"transfer", MakeTransfer},
    {"transfer_tcp", MakeTransferOverTcp},
    {"second_start", MakeSecondStart},
    {"decode_batch", MakeDecodeBatch},
    {"interactive", MakeInteractive},
    {"distance", MakeDistance},
    {"shared_rows", MakeSharedRows},
};

// Runs `work` and turns its exceptions into a status.
absl::Status Catch(absl::FunctionRef<absl::Status()> work) {
  try {
    return work();
  } catch (const c10::Error& error) {
    return absl::InternalError(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

void Say(absl::string_view what) {
  std::cerr << "bench: " << what << std::endl;
}

class Runner {
 public:
  explicit Runner(const Options& options) : options_(options) {}

  void Add(const Entry& entry) { benchmarks_.push_back(entry.make(options_)); }

  // Measures everything. Failures are rows, too.
  void Run() {
    for (auto& benchmark : benchmarks_) {
      Say(absl::StrCat(benchmark->name(), ": local baselines"));
      const absl::Status status =
          Catch([&] { return benchmark->MeasureAlone(); });
      if (!status.ok()) Fail(&benchmark, status);
    }
    RunThose(/*with_session=*/false);
    if (std::none_of(benchmarks_.begin(), benchmarks_.end(),
                     [](const auto& left) { return left != nullptr; })) {
      return;
    }
    const absl::Status status = Catch([&] { return RunInSession(); });
    for (auto& benchmark : benchmarks_) {
      if (benchmark != nullptr) Fail(&benchmark, status);
    }
    if (!status.ok()) AddFailure("session", status);
  }

  const std::vector<Row>& rows() const { return rows_; }

 private:
  absl::Status RunInSession() {
    Say("starting a cluster");
    DJINN_ASSIGN_OR_RETURN(const auto cluster,
                           EmbeddedCluster::Start(ClusterOptions(options_)));
    DJINN_RETURN_IF_ERROR(Connect(cluster->connect_options()));
    RunThose(/*with_session=*/true);
    return Close();
  }

  void RunThose(bool with_session) {
    for (auto& benchmark : benchmarks_) {
      if (benchmark == nullptr || benchmark->needs_session() != with_session) {
        continue;
      }
      Say(benchmark->name());
      const absl::Status status =
          Catch([&] { return benchmark->Measure(&rows_); });
      if (!status.ok()) Fail(&benchmark, status);
      // Releases the benchmark's tensors while the session is open.
      benchmark.reset();
    }
  }

  void Fail(std::unique_ptr<Benchmark>* benchmark, const absl::Status& status) {
    AddFailure((*benchmark)->name(), status);
    // A benchmark that needs no session may have left a session of its own
    // open. Other benchmarks must not use that session.
    if (!(*benchmark)->needs_session() && IsConnected()) {
      Close(absl::ZeroDuration()).IgnoreError();
    }
    benchmark->reset();
  }

  void AddFailure(absl::string_view name, const absl::Status& status) {
    Row row;
    row.benchmark = std::string(name);
    row.variant = "not measured";
    row.error = status.ToString();
    rows_.push_back(std::move(row));
  }

  const Options options_;
  // In order; null once done.
  std::vector<std::unique_ptr<Benchmark>> benchmarks_;
  std::vector<Row> rows_;
};

// Returns the model that the build put beside this program.
std::string BuiltInModel() { return OwnProgram() + ".runfiles/minilm/model"; }

std::string DefaultJsonPath() {
  const std::string time =
      absl::FormatTime("%Y%m%dT%H%M%SZ", absl::Now(), absl::UTCTimeZone());
  return (std::filesystem::temp_directory_path() /
          absl::StrCat("djinn-bench-", time, ".json"))
      .string();
}

int Main(const std::vector<std::string>& names) {
  Options options;
  options.rounds = absl::GetFlag(FLAGS_rounds);
  options.threads = absl::GetFlag(FLAGS_threads);
  options.device = absl::GetFlag(FLAGS_device);
  options.model_folder = absl::GetFlag(FLAGS_model_dir);
  options.idle_sessions = absl::GetFlag(FLAGS_sessions);
  options.idle_workers = absl::GetFlag(FLAGS_workers);
  if (options.model_folder.empty()) options.model_folder = BuiltInModel();
  if (options.rounds < 1 || options.threads < 1) {
    Say("--rounds and --threads are at least 1");
    return 2;
  }
  if (options.device != "cpu" &&
      dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    Say(absl::StrCat("--device=", options.device, ": ", dlerror()));
    return 2;
  }
  Runner runner(options);
  std::vector<std::string> known;
  for (const Entry& entry : kBenchmarks) {
    known.push_back(entry.name);
    if (names.empty() ||
        std::find(names.begin(), names.end(), entry.name) != names.end()) {
      runner.Add(entry);
    }
  }
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      Say(absl::StrCat("no benchmark ", name,
                       "; there are: ", absl::StrJoin(known, " ")));
      return 2;
    }
  }

  nlohmann::json about = {{"machine", DescribeMachine()},
                          {"versions", DescribeVersions()}};
  about["conditions"] = {
      {"time", absl::FormatTime(absl::Now(), absl::UTCTimeZone())},
      {"load_before", LoadAverages()},
      {"rounds", options.rounds},
      {"threads", options.threads},
      {"workers", 1},
      {"wire", "Unix socket, no encryption"},
      {"device", options.device == "cpu" ? "CPU" : options.device}};
  runner.Run();
  about["conditions"]["load_after"] = LoadAverages();

  std::cout << FormatTable(runner.rows());
  std::string path = absl::GetFlag(FLAGS_json);
  if (path.empty()) path = DefaultJsonPath();
  std::ofstream file(path);
  file << MakeJson(std::move(about), runner.rows()).dump(2) << "\n";
  file.close();
  if (!file) {
    Say(absl::StrCat("cannot write ", path));
    return 1;
  }
  Say(absl::StrCat("wrote ", path));
  return std::any_of(runner.rows().begin(), runner.rows().end(),
                     [](const Row& row) { return !row.error.empty(); });
}

}  // namespace
}  // namespace djinn::bench

int main(int argc, char** argv) {
  if (argc > 2 && std::strcmp(argv[1], djinn::bench::kLoadModel) == 0) {
    return djinn::bench::LoadModel(argc - 2, argv + 2);
  }
  if (argc > 2 && std::strcmp(argv[1], djinn::bench::kDecode) == 0) {
    return djinn::bench::DecodeSession(argc - 2, argv + 2);
  }
  if (argc > 2 && std::strcmp(argv[1], djinn::bench::kTrain) == 0) {
    return djinn::bench::Train(argc - 2, argv + 2);
  }
  absl::SetProgramUsageMessage(
      "measures Djinn beside what it replaces\n"
      "usage: runner [--json=FILE] [--rounds=N] [NAME...]");
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  return djinn::bench::Main({arguments.begin() + 1, arguments.end()});
}
