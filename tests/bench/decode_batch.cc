// Measures eight programs of two tenants that generate with the same model at
// the same time, each at another position. Compares batched products with
// products that are not batched.

#include <algorithm>
#include <exception>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/ops/tensor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "c10/core/InferenceMode.h"
#include "common/base/status_macros.h"
#include "djinn/djinn.h"
#include "tests/bench/benchmark.h"
#include "tests/bench/child_process.h"
#include "tests/bench/statistics.h"
#include "tests/bench/tenant_cluster.h"
#include "tests/models/decoder.h"

namespace djinn::bench {
namespace {

constexpr int kSessions = 8;
constexpr int kTokens = 32;
constexpr int64_t kLayers = 4;
constexpr uint64_t kSeed = 11;
// After these rounds, weights are packed and choices made.
constexpr int kSettlingRounds = 3;
constexpr int kMaxRounds = 7;

int64_t PromptTokens(int session) { return 16 + 5 * session; }

at::Tensor Prompt(int64_t tokens, const Decoder& decoder) {
  std::vector<int64_t> prompt;
  for (int64_t i = 0; i < tokens; ++i) {
    prompt.push_back((7919 * i + 104729 * tokens) % decoder.shape().vocabulary);
  }
  return at::tensor(prompt).unsqueeze(0);
}

std::string Join(const std::vector<int64_t>& tokens) {
  std::string text;
  for (const int64_t token : tokens) absl::StrAppend(&text, " ", token);
  return text;
}

// Returns the tokens that one program generates on this machine with the CPU's
// kernels.
std::string GenerateLocally(const Decoder& decoder, int session) {
  const c10::InferenceMode inference;
  Decoder::Sequence sequence(&decoder, DecoderCache::kConcatenated);
  at::Tensor next = sequence.Next(Prompt(PromptTokens(session), decoder));
  std::vector<int64_t> tokens;
  for (int i = 0; i < kTokens; ++i) {
    next = sequence.Next(next);
    tokens.push_back(next.item<int64_t>());
  }
  return Join(tokens);
}

// A cluster and its eight programs.
class Side {
 public:
  static absl::StatusOr<std::unique_ptr<Side>> Start(const Options& options,
                                                     int max_batch_runs) {
    auto side = std::make_unique<Side>();
    DJINN_ASSIGN_OR_RETURN(
        side->cluster_,
        TenantCluster::Start(
            {.tenants = {"a", "b"},
             .of_tenants = "share_contents: true, batch_with_others: true, "
                           "limits: {memory: 1GiB}",
             .of_worker = absl::StrCat("device: {kind: cpu, memory: 8GiB, "
                                       "calibrate: false, threads: 1}\n"
                                       "max_batch_runs: ",
                                       max_batch_runs, "\n")}));
    // The first program uploads the model, and the others find it.
    for (int i = 0; i < kSessions; ++i) {
      DJINN_ASSIGN_OR_RETURN(side->programs_.emplace_back(),
                             side->StartProgram(i));
      if (i % 4 == 0) DJINN_RETURN_IF_ERROR(side->Await(i, "ready"));
    }
    for (int i = 0; i < kSessions; ++i) {
      if (i % 4 != 0) DJINN_RETURN_IF_ERROR(side->Await(i, "ready"));
    }
    return side;
  }

  // Generates in all programs at the same time, and compares their tokens with
  // `expected`. Returns the seconds from the start of the first token to the
  // end of the last one.
  absl::StatusOr<double> Generate(const std::vector<std::string>& expected) {
    // Prompts run one after the other, tokens together.
    for (int i = 0; i < kSessions; ++i) {
      DJINN_RETURN_IF_ERROR(
          programs_[i]->WriteLine(absl::StrCat(PromptTokens(i), " ", kTokens)));
      DJINN_RETURN_IF_ERROR(Await(i, "prompt"));
    }
    const double start = WallNow();
    for (const auto& program : programs_) {
      DJINN_RETURN_IF_ERROR(program->WriteLine("go"));
    }
    std::vector<std::string> lines;
    for (const auto& program : programs_) {
      DJINN_ASSIGN_OR_RETURN(lines.emplace_back(),
                             ReadLinePatiently(program.get()));
    }
    const double seconds = WallNow() - start;
    for (int i = 0; i < kSessions; ++i) {
      const size_t end = lines[i].find(' ');
      if (end == std::string::npos) return absl::InternalError(lines[i]);
      different_ += lines[i].substr(end) != expected[i];
    }
    return seconds;
  }
  int different() const { return different_; }

  absl::StatusOr<double> RunsOfAProduct() const {
    DJINN_ASSIGN_OR_RETURN(const double runs,
                           cluster_->Metric("worker", "djinn_batch_runs_sum"));
    DJINN_ASSIGN_OR_RETURN(
        const double products,
        cluster_->Metric("worker", "djinn_batch_runs_count"));
    return products == 0 ? 1 : runs / products;
  }

 private:
  absl::StatusOr<std::unique_ptr<ChildProcess>> StartProgram(int i) const {
    return ChildProcess::Start(
        OwnProgram(),
        {kDecode, cluster_->coordinator(),
         cluster_->token_file(i % 2 == 0 ? "a" : "b"), absl::StrCat(kLayers)});
  }
  absl::Status Await(int program, absl::string_view what) const {
    DJINN_ASSIGN_OR_RETURN(const std::string line,
                           ReadLinePatiently(programs_[program].get()));
    return line == what ? absl::OkStatus() : absl::InternalError(line);
  }

  std::unique_ptr<TenantCluster> cluster_;
  std::vector<std::unique_ptr<ChildProcess>> programs_;
  int different_ = 0;
};

class DecodeBatchBenchmark : public Benchmark {
 public:
  explicit DecodeBatchBenchmark(const Options& options)
      : options_(options), rounds_(std::min(options.rounds, kMaxRounds)) {}

  absl::string_view name() const override { return "decode_batch"; }
  bool needs_session() const override { return false; }

  absl::Status Measure(std::vector<Row>* rows) override {
    at::set_num_threads(options_.threads);
    std::vector<std::string> expected;
    {
      const Decoder decoder({.layers = kLayers}, kSeed, at::kCPU);
      for (int i = 0; i < kSessions; ++i) {
        expected.push_back(GenerateLocally(decoder, i));
      }
    }
    DJINN_ASSIGN_OR_RETURN(const auto together, Side::Start(options_, 16));
    DJINN_ASSIGN_OR_RETURN(const auto apart, Side::Start(options_, 1));
    for (int i = 0; i < kSettlingRounds; ++i) {
      DJINN_RETURN_IF_ERROR(together->Generate(expected).status());
      DJINN_RETURN_IF_ERROR(apart->Generate(expected).status());
    }
    Row row;
    row.benchmark = std::string(name());
    row.variant = absl::StrFormat("%d sessions of 2 tenants, %d layers, fast",
                                  kSessions, kLayers);
    row.djinn.emplace();
    row.baseline.emplace();
    row.baseline_name = "the same without sharing products";
    const auto measure = [&](Side* side, Series* series) -> absl::Status {
      DJINN_ASSIGN_OR_RETURN(const double seconds, side->Generate(expected));
      series->AddRound({seconds / (kSessions * kTokens)});
      return absl::OkStatus();
    };
    DJINN_RETURN_IF_ERROR(Interleave(
        rounds_, [&](int) { return measure(together.get(), &*row.djinn); },
        [&](int) { return measure(apart.get(), &*row.baseline); }));
    SetRatio(&row);
    DJINN_ASSIGN_OR_RETURN(const double runs, together->RunsOfAProduct());
    row.numbers["runs_of_a_shared_product"] = runs;
    row.notes.push_back(absl::StrFormat("%.1f runs share a product", runs));
    row.checked =
        absl::StrFormat("%d sequences of %d tokens, equal to local ones",
                        2 * kSessions * (rounds_ + kSettlingRounds), kTokens);
    const int different = together->different() + apart->different();
    if (different > 0) row.error = absl::StrCat(different, " sequences differ");
    rows->push_back(std::move(row));
    return absl::OkStatus();
  }

 private:
  const Options options_;
  const int rounds_;
};

absl::Status Serve(const ConnectOptions& options, int64_t layers) {
  at::set_num_threads(1);
  DJINN_RETURN_IF_ERROR(ConnectPatiently(options));
  SetExecutionMode(ExecutionMode::kFast);
  const c10::InferenceMode inference;
  const Decoder decoder({.layers = layers}, kSeed, Device());
  std::cout << "ready" << std::endl;
  for (int64_t prompt, count; std::cin >> prompt >> count;) {
    Decoder::Sequence sequence(&decoder, DecoderCache::kConcatenated);
    at::Tensor next = sequence.Next(Prompt(prompt, decoder).to(Device()));
    next.item<int64_t>();
    std::cout << "prompt" << std::endl;
    std::string go;
    std::cin >> go;
    std::vector<int64_t> tokens;
    const double start = WallNow();
    for (int64_t i = 0; i < count; ++i) {
      next = sequence.Next(next);
      tokens.push_back(next.item<int64_t>());
    }
    std::cout << (WallNow() - start) / static_cast<double>(count)
              << Join(tokens) << std::endl;
  }
  return Close();
}

}  // namespace

int DecodeSession(int argc, char** argv) {
  int64_t layers = 0;
  if (argc != 3 || !absl::SimpleAtoi(argv[2], &layers)) return 2;
  ConnectOptions options;
  options.coordinator = argv[0];
  options.token_file = argv[1];
  absl::Status status;
  try {
    status = Serve(options, layers);
  } catch (const std::exception& error) {
    status = absl::InternalError(error.what());
  }
  if (!status.ok()) std::cout << status << std::endl;
  return status.ok() ? 0 : 1;
}

std::unique_ptr<Benchmark> MakeDecodeBatch(const Options& options) {
  return std::make_unique<DecodeBatchBenchmark>(options);
}

}  // namespace djinn::bench
