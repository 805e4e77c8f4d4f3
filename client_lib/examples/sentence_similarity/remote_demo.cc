#include "client_lib/examples/sentence_similarity/remote_demo.h"

#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <ostream>
#include <thread>
#include <utility>

#include "ATen/Parallel.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/cat.h"
#include "absl/cleanup/cleanup.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client_lib/examples/sentence_similarity/encoder_service.h"
#include "client_lib/examples/sentence_similarity/latency.h"
#include "client_lib/examples/sentence_similarity/similarity_table.h"
#include "djinn/djinn.h"

namespace djinn::examples {
namespace {

constexpr int kWorkers = 2;
constexpr double kMaxDifference = 1e-5;
// Of the first run's bytes up, for every later run and for a second process.
constexpr double kMaxShare = 0.02;

// Sentences that are encoded together.
using Request = std::vector<std::string>;

// What became of a row of requests.
struct Trial {
  Latency latency;
  std::vector<at::Tensor> embeddings;  // Of each request.
  std::vector<Statistics> statistics;  // After each request.
};

struct Loaded {
  std::unique_ptr<EncoderService> service;
  absl::Duration time;
};

// The CPU's results and its best times.
struct Baseline {
  absl::Duration load;
  absl::Duration first;
  absl::Duration warm;
  int threads = 0;
  std::vector<int> threads_tried;
  std::vector<at::Tensor> embeddings;
};

int Cores() { return std::max(1u, std::thread::hardware_concurrency()); }

absl::StatusOr<Loaded> Load(const DemoOptions& options, at::Device device) {
  const absl::Time start = absl::Now();
  auto service = EncoderService::Load({.model_folder = options.model_folder,
                                       .device = device,
                                       .max_tokens = options.max_tokens});
  if (!service.ok()) return service.status();
  return Loaded{*std::move(service), absl::Now() - start};
}

// Handles each request once. `requests` has at least two.
absl::StatusOr<Trial> Try(const EncoderService& service,
                          absl::Span<const Request> requests) {
  Trial trial;
  const auto encode = [&] {
    auto embeddings = service.Encode(requests[trial.embeddings.size()]);
    if (!embeddings.ok()) return embeddings.status();
    trial.embeddings.push_back(*std::move(embeddings));
    trial.statistics.push_back(GetStatistics());
    return absl::OkStatus();
  };
  auto latency =
      MeasureLatency(encode, static_cast<int>(requests.size()) - 1, absl::Now);
  if (!latency.ok()) return latency.status();
  trial.latency = *latency;
  return trial;
}

absl::StatusOr<Baseline> MeasureLocally(const DemoOptions& options,
                                        absl::Span<const Request> requests) {
  const int cores = Cores();
  at::set_num_threads(cores);
  auto loaded = Load(options, at::kCPU);
  if (!loaded.ok()) return loaded.status();
  Baseline baseline;
  baseline.load = loaded->time;
  baseline.warm = absl::InfiniteDuration();
  for (int threads = cores; threads >= 1; threads /= 2) {
    at::set_num_threads(threads);
    absl::StatusOr<Trial> trial = Try(*loaded->service, requests);
    if (!trial.ok()) return trial.status();
    if (threads == cores) {
      baseline.first = trial->latency.first;
      baseline.embeddings = std::move(trial->embeddings);
    }
    if (trial->latency.warm_median < baseline.warm) {
      baseline.warm = trial->latency.warm_median;
      baseline.threads = threads;
    }
    baseline.threads_tried.push_back(threads);
  }
  at::set_num_threads(baseline.threads);
  return baseline;
}

// NaN when there is one.
double MaxDifference(const std::vector<at::Tensor>& a,
                     const std::vector<at::Tensor>& b) {
  return at::cat(a).sub(at::cat(b)).abs().max().item<float>();
}

absl::Status CheckDifference(double difference) {
  if (difference <= kMaxDifference) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("results differ from the CPU's by ", difference,
                   ", more than ", kMaxDifference));
}

double Share(uint64_t bytes, uint64_t of) {
  return static_cast<double>(bytes) / static_cast<double>(of);
}

absl::Status CheckShare(absl::string_view what, uint64_t bytes, uint64_t of) {
  if (Share(bytes, of) < kMaxShare) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(what, " uploaded ", bytes, " bytes: the model's first run ",
                   "took ", of, ", and ", kMaxShare * 100, " % are allowed"));
}

std::string Milliseconds(absl::Duration duration) {
  return absl::StrFormat("%.1f ms", absl::ToDoubleMilliseconds(duration));
}

std::string Bytes(uint64_t bytes) {
  if (bytes < 1000) return absl::StrCat(bytes, " B");
  if (bytes < 1000 * 1000) return absl::StrFormat("%.1f kB", bytes * 1e-3);
  return absl::StrFormat("%.1f MB", bytes * 1e-6);
}

std::string Row(absl::string_view label,
                std::initializer_list<std::string> cells) {
  std::string row = absl::StrFormat("  %-28s", label);
  for (const std::string& cell : cells)
    absl::StrAppendFormat(&row, "%14s", cell);
  return row + "\n";
}

std::string FormatSynchronousCalls() {
  const std::map<std::string, uint64_t> calls = SynchronousCalls();
  if (calls.empty()) return "none";
  return absl::StrJoin(calls, ", ", absl::PairFormatter(" "));
}

// Most bytes that one of the later requests sent.
uint64_t MostWarmBytesUp(const std::vector<Statistics>& statistics) {
  uint64_t most = 0;
  for (size_t i = 1; i < statistics.size(); ++i) {
    most = std::max(most, statistics[i].bytes_up - statistics[i - 1].bytes_up);
  }
  return most;
}

void ReportLatency(const Baseline& local, absl::Duration load,
                   const Latency& remote, size_t warm_runs, std::ostream& out) {
  out << "\n"
      << Row("Latency", {"local", "remote"})
      << Row("load the model", {Milliseconds(local.load), Milliseconds(load)})
      << Row("first run",
             {Milliseconds(local.first), Milliseconds(remote.first)})
      << Row(absl::StrCat("warm run, median of ", warm_runs),
             {Milliseconds(local.warm), Milliseconds(remote.warm_median)});
}

void ReportTraffic(const std::vector<Statistics>& statistics,
                   std::ostream& out) {
  const Statistics& first = statistics.front();
  const Statistics& last = statistics.back();
  const uint64_t warm_runs = statistics.size() - 1;
  const auto count = [&](absl::string_view label,
                         uint64_t Statistics::* field) {
    out << Row(label, {absl::StrCat(first.*field),
                       absl::StrCat(last.*field - first.*field)});
  };
  out << "\n"
      << Row("Traffic", {"load + first", "per warm run"})
      << Row("bytes up", {Bytes(first.bytes_up),
                          Bytes((last.bytes_up - first.bytes_up) / warm_runs)})
      << Row("bytes down",
             {Bytes(first.bytes_down),
              Bytes((last.bytes_down - first.bytes_down) / warm_runs)})
      << absl::StrFormat(
             "  The warm run that sent most sent %.4f %% of the first's "
             "bytes.\n",
             100 * Share(MostWarmBytesUp(statistics), first.bytes_up))
      << "\n"
      << Row("Work", {"load + first", "all warm runs"});
  count("operator calls", &Statistics::calls);
  count("runs of structures", &Statistics::runs);
  count("structures defined", &Statistics::structures_defined);
  count("found in the plan cache", &Statistics::plan_cache_hits);
  count("uploads inside messages", &Statistics::uploads_inline);
  count("larger uploads sent", &Statistics::uploads_sent);
  count("found in the content cache", &Statistics::uploads_already_held);
  count("synchronous calls", &Statistics::synchronous_calls);
  out << "  synchronous calls by operator: " << FormatSynchronousCalls()
      << "\n";
}

// Times on a busy machine say little: a program that computes all the time, as
// the baseline does, then gets less of it than one that also waits.
void WarnOfOtherPrograms(std::ostream& out) {
  double load = 0;
  if (getloadavg(&load, 1) != 1 || load < 0.5 * Cores()) return;
  out << "Other programs use this machine (load "
      << absl::StrFormat("%.1f", load) << " on " << Cores()
      << " cores): do not compare times.\n";
}

std::vector<Request> MakeRequests(const DemoOptions& options) {
  std::vector<Request> requests;
  for (int round = 0; round <= std::max(options.warm_runs, 1); ++round) {
    Request request;
    for (const std::string& sentence : options.sentences) {
      request.push_back(Reordered(sentence, round));
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

// Runs this program once more, as the second process, and waits for it.
absl::Status StartSecondProcess(const DemoOptions& options,
                                const FirstProcess& first) {
  std::vector<std::string> arguments = {
      "/proc/self/exe",
      "--second_process",
      absl::StrCat("--model_dir=", options.model_folder),
      absl::StrCat("--max_tokens=", options.max_tokens),
      absl::StrCat("--coordinator=", first.coordinator),
      absl::StrCat("--token_file=", first.token_file),
      absl::StrCat("--first_worker=", first.worker_id),
      absl::StrCat("--first_bytes_up=", first.bytes_up),
      "--"};
  arguments.insert(arguments.end(), options.sentences.begin(),
                   options.sentences.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t pid;
  if (const int error =
          posix_spawn(&pid, argv[0], nullptr, nullptr, argv.data(), environ);
      error != 0) {
    return absl::InternalError(
        absl::StrCat("cannot start a second process: ", std::strerror(error)));
  }
  int end = 0;
  while (waitpid(pid, &end, 0) < 0 && errno == EINTR) {
  }
  if (end == 0) return absl::OkStatus();
  return absl::FailedPreconditionError("the second process failed");
}

absl::Status RunFirstProcess(const DemoOptions& options,
                             const ConnectOptions& connect,
                             absl::Span<const Request> requests,
                             const Baseline& local, std::ostream& out) {
  absl::Status status = Connect(connect);
  if (!status.ok()) return status;
  const absl::Cleanup close = [] { Close().IgnoreError(); };
  const auto loaded = Load(options, Device());
  if (!loaded.ok()) return loaded.status();
  const auto trial = Try(*loaded->service, requests);
  if (!trial.ok()) return trial.status();
  const auto where = WhereIs();
  if (!where.ok()) return where.status();

  const at::Tensor& shown = trial->embeddings.front();
  out << FormatSimilarityTable(
      options.sentences,
      CosineSimilarities(
          {shown.const_data_ptr<float>(), static_cast<size_t>(shown.numel())},
          loaded->service->width()));
  const double difference = MaxDifference(trial->embeddings, local.embeddings);
  out << "\n"
      << Device().str() << " was " << where->worker_id << ": " << where->reason
      << "\nLargest difference to the CPU in " << requests.size()
      << " runs on different sentences: " << difference << "\n";
  ReportLatency(local, loaded->time, trial->latency, requests.size() - 1, out);
  ReportTraffic(trial->statistics, out);
  out << std::flush;

  const uint64_t bytes_up = trial->statistics.front().bytes_up;
  status.Update(CheckDifference(difference));
  status.Update(
      CheckShare("a warm run", MostWarmBytesUp(trial->statistics), bytes_up));
  // While this process still holds the model, as a busy service would.
  status.Update(StartSecondProcess(
      options,
      {connect.coordinator, connect.token_file, where->worker_id, bytes_up}));
  status.Update(Close());
  return status;
}

// Everything that this process started, directly or not, must be gone.
absl::Status CheckNoProcessIsLeft() {
  const pid_t left = waitpid(-1, nullptr, WNOHANG);
  if (left < 0 && errno == ECHILD) return absl::OkStatus();
  return absl::FailedPreconditionError("a process was left behind");
}

}  // namespace

std::string Reordered(absl::string_view sentence, int round) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(sentence, ' ', absl::SkipWhitespace());
  std::vector<size_t> order(words.size());
  std::iota(order.begin(), order.end(), 0);
  for (int i = 0; i < round; ++i) {
    std::next_permutation(order.begin(), order.end());
  }
  return absl::StrJoin(order, " ", [&](std::string* text, size_t i) {
    absl::StrAppend(text, words[i]);
  });
}

absl::Status RunDemo(const DemoOptions& options, std::ostream& out) {
  // Orphans come to us, so that none can hide.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  WarnOfOtherPrograms(out);
  const std::vector<Request> requests = MakeRequests(options);
  const auto local = MeasureLocally(options, requests);
  if (!local.ok()) return local.status();
  auto cluster = EmbeddedCluster::Start(
      {.workers = kWorkers, .worker_threads = local->threads});
  if (!cluster.ok()) return cluster.status();
  const std::vector<pid_t> workers = (*cluster)->worker_pids();
  out << "Processes: this one " << getpid() << ", coordinator "
      << (*cluster)->coordinator_pid() << ", workers "
      << absl::StrJoin(workers, " and ")
      << "\nCompute threads: " << local->threads
      << " here and in each worker, the CPU's best of "
      << absl::StrJoin(local->threads_tried, " and ") << "\n\n";

  absl::Status status = RunFirstProcess(options, (*cluster)->connect_options(),
                                        requests, *local, out);
  cluster->reset();
  status.Update(CheckNoProcessIsLeft());
  if (status.ok()) out << "\nEvery process has ended. All checks passed.\n";
  return status;
}

absl::Status RunSecondProcess(const DemoOptions& options,
                              const FirstProcess& first, std::ostream& out) {
  const auto local = Load(options, at::kCPU);
  if (!local.ok()) return local.status();
  const auto expected = local->service->Encode(options.sentences);
  if (!expected.ok()) return expected.status();

  absl::Status status = Connect(
      {.coordinator = first.coordinator, .token_file = first.token_file});
  if (!status.ok()) return status;
  const absl::Cleanup close = [] { Close().IgnoreError(); };
  const absl::Time start = absl::Now();
  const auto remote = Load(options, Device());
  if (!remote.ok()) return remote.status();
  const auto embeddings = remote->service->Encode(options.sentences);
  if (!embeddings.ok()) return embeddings.status();
  const absl::Duration time = absl::Now() - start;
  const auto where = WhereIs();
  if (!where.ok()) return where.status();
  const Statistics statistics = GetStatistics();

  const double difference = MaxDifference({*embeddings}, {*expected});
  out << "\nA second process, " << getpid() << ", with the same model\n"
      << "  ran on " << where->worker_id << ": " << where->reason << "\n"
      << "  loaded and ran in " << Milliseconds(time) << ", sent "
      << Bytes(statistics.bytes_up)
      << absl::StrFormat(" (%.2f %% of the first process' bytes)\n",
                         100 * Share(statistics.bytes_up, first.bytes_up))
      << "  found " << statistics.uploads_already_held
      << " uploads in the content cache, " << statistics.plan_cache_hits
      << " of " << statistics.structures_defined
      << " structures in the plan cache\n"
      << "  largest difference to the CPU: " << difference << "\n"
      << std::flush;

  status.Update(CheckDifference(difference));
  if (where->worker_id != first.worker_id) {
    status.Update(absl::FailedPreconditionError(
        absl::StrCat("the second process ran on ", where->worker_id,
                     ", though ", first.worker_id, " has the model")));
  }
  status.Update(
      CheckShare("the second process", statistics.bytes_up, first.bytes_up));
  status.Update(Close());
  return status;
}

}  // namespace djinn::examples
