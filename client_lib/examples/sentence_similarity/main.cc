// Embeds sentences with all-MiniLM-L6-v2 and shows which are alike.
//
//   sentence_similarity --model_dir=FOLDER "A first sentence" "A second one"
//   sentence_similarity --model_dir=FOLDER --coordinator=ADDRESS
//       --token_file=FILE
//   sentence_similarity --model_dir=FOLDER --demo
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/TensorOperators.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/matmul.h"
#include "absl/cleanup/cleanup.h"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client_lib/examples/sentence_similarity/encoder.h"
#include "djinn/djinn.h"

ABSL_FLAG(std::string, model_dir, "",
          "folder of the model: what sentence-transformers saves");
ABSL_FLAG(std::string, device, "",
          "where the model runs: cpu, or, if there is a coordinator, "
          "remote_accelerator:0");
ABSL_FLAG(std::string, coordinator, "",
          "address of a Djinn cluster to run on; DJINN_COORDINATOR if empty");
ABSL_FLAG(std::string, token_file, "",
          "file with a token for that cluster; DJINN_TOKEN_FILE if empty");
ABSL_FLAG(bool, demo, false,
          "start a cluster, run there and here, and compare");
ABSL_FLAG(uint32_t, max_tokens, 0,
          "longest sentence, in tokens; 0 for the model's own limit");
ABSL_FLAG(int32_t, requests, 20, "requests after the first, in a demo");
ABSL_FLAG(uint64_t, max_bytes_up, 0,
          "fail if more bytes are sent to the cluster; 0 for no limit");

namespace djinn::examples {
namespace {

constexpr double kMaxDifference = 1e-5;
// The largest share of the first request's bytes that a later request, or a
// second process, may send.
constexpr double kMaxShare = 0.02;

using Sentences = std::vector<std::string>;

// Results and times of a series of requests on one device.
struct Series {
  std::vector<at::Tensor> embeddings;
  absl::Duration load, first, median;
  // Traffic of loading and the first request, and of the last request.
  Statistics first_moved, last_moved;
};

std::string Milliseconds(absl::Duration duration) {
  return absl::StrFormat("%.1f ms", absl::ToDoubleMilliseconds(duration));
}

std::string Kilobytes(uint64_t bytes) {
  return absl::StrFormat("%.1f kB", static_cast<double>(bytes) * 1e-3);
}

std::string FormatSimilarities(const Sentences& sentences,
                               const at::Tensor& embeddings) {
  const at::Tensor cosines = at::matmul(embeddings, embeddings.t());
  std::string table;
  for (size_t i = 0; i < sentences.size(); ++i) {
    absl::StrAppendFormat(&table, "%4d  %s\n", i + 1, sentences[i]);
  }
  if (sentences.size() < 2) return table;
  table += "\nMost alike:\n";
  for (int64_t i = 0; i < cosines.size(0); ++i) {
    const at::Tensor others = cosines[i].clone();
    others[i] = -2;  // Below every cosine.
    const int64_t best = others.argmax().item<int64_t>();
    absl::StrAppendFormat(&table, "%4d and %d: %.3f\n", i + 1, best + 1,
                          others[best].item<float>());
  }
  return table;
}

absl::StatusOr<Series> RunOn(at::Device device,
                             const std::vector<Sentences>& requests) {
  Series series;
  std::vector<absl::Duration> later;
  absl::Time start = absl::Now();
  const auto encoder =
      Encoder::Load({.model_folder = absl::GetFlag(FLAGS_model_dir),
                     .device = device,
                     .max_tokens = absl::GetFlag(FLAGS_max_tokens)});
  if (!encoder.ok()) return encoder.status();
  series.load = absl::Now() - start;
  Statistics before;
  for (const Sentences& request : requests) {
    start = absl::Now();
    const auto embeddings = (*encoder)->Encode(request);
    if (!embeddings.ok()) return embeddings.status();
    later.push_back(absl::Now() - start);
    series.embeddings.push_back(*embeddings);
    const Statistics now = GetStatistics();
    if (series.embeddings.size() == 1) series.first_moved = now;
    series.last_moved.bytes_up = now.bytes_up - before.bytes_up;
    series.last_moved.bytes_down = now.bytes_down - before.bytes_down;
    before = now;
  }
  series.first = later.front();
  if (later.size() > 1) later.erase(later.begin());
  std::sort(later.begin(), later.end());
  series.median = later[later.size() / 2];
  return series;
}

// Returns the sentences with their words in another order for each `round`.
Sentences Reordered(const Sentences& sentences, int round) {
  Sentences reordered;
  for (const std::string& sentence : sentences) {
    std::vector<std::string> words = absl::StrSplit(sentence, ' ');
    std::rotate(words.begin(), words.begin() + round % words.size(),
                words.end());
    reordered.push_back(absl::StrJoin(words, " "));
  }
  return reordered;
}

absl::Status CheckDifference(const Series& a, const Series& b) {
  const double difference =
      (at::cat(a.embeddings) - at::cat(b.embeddings)).abs().max().item<float>();
  std::cout << absl::StreamFormat(
      "Largest difference between remote and local embeddings: %g\n",
      difference);
  if (difference <= kMaxDifference) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the results differ by more than ", kMaxDifference));
}

absl::Status CheckBytes(uint64_t bytes, uint64_t limit) {
  if (bytes <= limit) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("sent ", bytes, " bytes, ", limit, " are allowed"));
}

// Runs on the flags' device and prints which sentences are alike.
absl::Status ShowSimilarities(const Sentences& sentences, at::Device device) {
  const auto series = RunOn(device, {sentences});
  if (!series.ok()) return series.status();
  std::cout << FormatSimilarities(sentences, series->embeddings[0]);
  if (!device.is_privateuseone()) return absl::OkStatus();
  const auto where = WhereIs(std::max<int>(device.index(), 0));
  if (!where.ok()) return where.status();
  const Statistics& moved = series->first_moved;
  std::cout << "\n"
            << device.str() << " is " << where->worker_id << ": "
            << where->reason << "\nLoaded the model and answered in "
            << Milliseconds(series->load + series->first) << ", sent "
            << Kilobytes(moved.bytes_up) << "; the worker already held "
            << moved.uploads_already_held << " tensors.\n"
            << std::flush;
  const uint64_t limit = absl::GetFlag(FLAGS_max_bytes_up);
  return limit == 0 ? absl::OkStatus() : CheckBytes(moved.bytes_up, limit);
}

// Runs this program once more on the cluster, and waits for it.
absl::Status RunSecondProcess(const ConnectOptions& connect,
                              uint64_t max_bytes_up) {
  Sentences arguments = {
      "/proc/self/exe",
      absl::StrCat("--model_dir=", absl::GetFlag(FLAGS_model_dir)),
      absl::StrCat("--coordinator=", connect.coordinator),
      absl::StrCat("--token_file=", connect.token_file),
      absl::StrCat("--max_bytes_up=", max_bytes_up),
      "Good day",
      "Good evening"};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t pid;
  if (const int error =
          posix_spawn(&pid, argv[0], nullptr, nullptr, argv.data(), environ);
      error != 0) {
    return absl::ErrnoToStatus(error, "cannot start a second process");
  }
  int end = 0;
  while (waitpid(pid, &end, 0) < 0 && errno == EINTR) {
  }
  if (end == 0) return absl::OkStatus();
  return absl::FailedPreconditionError("the second process failed");
}

// Compares a remote device with the CPU on the same requests.
absl::Status Compare(const Sentences& sentences, const Series& local,
                     const std::vector<Sentences>& requests,
                     const ConnectOptions& connect) {
  absl::Status status = Connect(connect);
  if (!status.ok()) return status;
  const absl::Cleanup close = [] { Close().IgnoreError(); };
  const auto remote = RunOn(Device(), requests);
  if (!remote.ok()) return remote.status();
  const auto where = WhereIs();
  if (!where.ok()) return where.status();

  std::cout << FormatSimilarities(sentences, remote->embeddings[0]) << "\n"
            << Device().str() << " was " << where->worker_id << ": "
            << where->reason << "\n";
  status.Update(CheckDifference(*remote, local));
  const Statistics& first = remote->first_moved;
  const Statistics& last = remote->last_moved;
  const auto row = [](absl::string_view label, absl::string_view a,
                      absl::string_view b) {
    std::cout << absl::StreamFormat("  %-40s%14s%14s\n", label, a, b);
  };
  std::cout << "\n";
  row("", "local", "remote");
  row("load the model", Milliseconds(local.load), Milliseconds(remote->load));
  row("first request", Milliseconds(local.first), Milliseconds(remote->first));
  row(absl::StrCat("median of ", requests.size() - 1, " later requests"),
      Milliseconds(local.median), Milliseconds(remote->median));
  std::cout << "\n";
  row("", "sent", "received");
  row("load and first request", Kilobytes(first.bytes_up),
      Kilobytes(first.bytes_down));
  row("last request", Kilobytes(last.bytes_up), Kilobytes(last.bytes_down));
  std::cout << "\nA second process loads the same model from the same files "
               "while this one\nholds it. The worker knows the weights by "
               "their hashes, so they do not cross again:\n\n"
            << std::flush;
  const auto limit =
      static_cast<uint64_t>(kMaxShare * static_cast<double>(first.bytes_up));
  status.Update(CheckBytes(last.bytes_up, limit));
  status.Update(RunSecondProcess(connect, limit));
  status.Update(Close());
  return status;
}

absl::Status RunDemo(const Sentences& sentences) {
  std::vector<Sentences> requests;
  const int later = std::max(absl::GetFlag(FLAGS_requests), 1);
  for (int round = 0; round <= later; ++round) {
    requests.push_back(Reordered(sentences, round));
  }
  std::cout << "This demo answers the same requests twice with one program and "
               "one model, the\nsentence encoder all-MiniLM-L6-v2 with its "
               "real weights: locally, with PyTorch on\nthis process' CPU, and "
               "remotely, on a worker that Djinn chose. The program "
               "differs\nonly in the device that it names.\n\n"
            << std::flush;
  const auto local = RunOn(at::kCPU, requests);
  if (!local.ok()) return local.status();
  auto cluster = EmbeddedCluster::Start(
      {.workers = 2, .worker_threads = at::get_num_threads()});
  if (!cluster.ok()) return cluster.status();
  std::cout << "Started a coordinator (process "
            << (*cluster)->coordinator_pid() << ") and two workers (processes "
            << absl::StrJoin((*cluster)->worker_pids(), ", ")
            << ").\nThis process and each worker compute with "
            << at::get_num_threads() << " threads.\n\n";
  const absl::Status status =
      Compare(sentences, *local, requests, (*cluster)->connect_options());
  if (status.ok()) std::cout << "\nAll checks passed.\n";
  return status;
}

absl::Status Run(Sentences sentences) {
  if (sentences.empty()) {
    sentences = {
        "The new movie is awesome",    "The cat sits outside",
        "A man is playing guitar",     "The new movie is so great",
        "The dog plays in the garden", "A woman watches TV",
    };
  }
  if (absl::GetFlag(FLAGS_model_dir).empty()) {
    return absl::InvalidArgumentError("--model_dir is missing");
  }
  if (absl::GetFlag(FLAGS_demo)) return RunDemo(sentences);
  const std::string coordinator = absl::GetFlag(FLAGS_coordinator);
  const std::string name = absl::GetFlag(FLAGS_device);
  at::Device device = at::kCPU;
  try {
    if (!name.empty()) device = at::Device(name);
  } catch (const c10::Error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device: ", error.what_without_backtrace()));
  }
  if (!coordinator.empty()) {
    absl::Status status =
        Connect({.coordinator = coordinator,
                 .token_file = absl::GetFlag(FLAGS_token_file)});
    if (!status.ok()) return status;
    if (name.empty()) device = Device();
  }
  absl::Status status = ShowSimilarities(sentences, device);
  status.Update(Close());
  return status;
}

}  // namespace
}  // namespace djinn::examples

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "shows which sentences are alike\n"
      "usage: sentence_similarity --model_dir=FOLDER [FLAG...] [SENTENCE...]");
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  const absl::Status status = djinn::examples::Run(
      std::vector<std::string>(arguments.begin() + 1, arguments.end()));
  if (status.ok()) return 0;
  std::cerr << "sentence_similarity: "
            << status.ToString(absl::StatusToStringMode::kWithNoExtraData)
            << "\n";
  return 1;
}
