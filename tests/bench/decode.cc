// Measures generation by a decoder, token by token. The program reads each
// token before it generates the next one.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/ops/randint.h"
#include "ATen/ops/tensor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "c10/core/InferenceMode.h"
#include "common/base/status_macros.h"
#include "djinn/djinn.h"
#include "tests/bench/benchmark.h"
#include "tests/bench/check.h"
#include "tests/bench/report.h"
#include "tests/bench/statistics.h"
#include "tests/models/decoder.h"

namespace djinn::bench {
namespace {

constexpr int64_t kPromptTokens = 64;
constexpr int64_t kLongPromptTokens = 1024;
constexpr int kTokens = 32;
constexpr uint64_t kSeed = 11;
// After these sequences, a worker in fast mode has packed the weights and made
// its choices.
constexpr int kSettlingSequences = 8;
// A round of generation takes seconds.
constexpr int kMaxRounds = 7;

struct Variant {
  int64_t layers;
  DecoderCache cache;
  int64_t prompt_tokens = kPromptTokens;

  DecoderShape shape() const {
    return {.layers = layers, .max_tokens = prompt_tokens + 960};
  }
};
constexpr Variant kVariants[] = {
    {4, DecoderCache::kConcatenated},
    {4, DecoderCache::kPreallocated},
    {12, DecoderCache::kConcatenated},
    {4, DecoderCache::kConcatenated, kLongPromptTokens},
};
// The most bytes that a token may send, at any depth.
constexpr uint64_t kMaxBytesUp = 400;

struct Generated {
  std::vector<int64_t> tokens;
  std::vector<double> seconds;  // of each token after the prompt's
  int64_t cache_bytes = 0;
  // Traffic of these tokens, on a remote device.
  Statistics moved;
};

// Generates from another prompt in every round. The prompt grows by so much
// that no earlier round had a token at the same position.
Generated Generate(const Decoder& decoder, const Variant& variant, int round,
                   at::Device device) {
  const c10::InferenceMode inference;
  std::vector<int64_t> prompt;
  const int64_t prompt_tokens = variant.prompt_tokens + kTokens * (round + 1);
  for (int64_t i = 0; i < prompt_tokens; ++i) {
    prompt.push_back((7919 * i + 104729 * (round + 2)) %
                     decoder.shape().vocabulary);
  }
  Decoder::Sequence sequence(&decoder, variant.cache);
  at::Tensor next = sequence.Next(at::tensor(prompt).unsqueeze(0).to(device));
  Generated generated;
  generated.tokens.push_back(next.item<int64_t>());
  const Statistics before = device.is_cpu() ? Statistics() : GetStatistics();
  for (int i = 0; i < kTokens; ++i) {
    const double start = WallNow();
    next = sequence.Next(next);
    generated.tokens.push_back(next.item<int64_t>());
    generated.seconds.push_back(WallNow() - start);
  }
  if (!device.is_cpu()) generated.moved = GetStatistics() - before;
  generated.cache_bytes = sequence.cache_bytes();
  return generated;
}

class DecodeBenchmark : public Benchmark {
 public:
  explicit DecodeBenchmark(const Options& options)
      : options_(options), rounds_(std::min(options.rounds, kMaxRounds)) {}

  absl::string_view name() const override { return "decode"; }

  absl::Status MeasureAlone() override {
    at::set_num_threads(options_.threads);
    for (const Variant& variant : kVariants) {
      const Decoder decoder(variant.shape(), kSeed, LocalDevice(options_));
      Generate(decoder, variant, -1, LocalDevice(options_));
      Series& series = alone_.emplace_back();
      DJINN_RETURN_IF_ERROR(MeasureRounds(rounds_, [&](int round) {
        series.AddRound(
            Generate(decoder, variant, round, LocalDevice(options_)).seconds);
        return absl::OkStatus();
      }));
    }
    return absl::OkStatus();
  }

  absl::Status Measure(std::vector<Row>* rows) override {
    at::set_num_threads(options_.threads);
    for (size_t i = 0; i < std::size(kVariants); ++i) {
      for (const ExecutionMode mode :
           {ExecutionMode::kStrict, ExecutionMode::kFast}) {
        SetExecutionMode(mode);
        const absl::Status measured =
            MeasureVariant(kVariants[i], mode, alone_[i], rows);
        SetExecutionMode(ExecutionMode::kStrict);
        DJINN_RETURN_IF_ERROR(measured);
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status MeasureVariant(const Variant& variant, ExecutionMode mode,
                              const Series& alone, std::vector<Row>* rows) {
    const Decoder local(variant.shape(), kSeed, LocalDevice(options_));
    const Decoder remote(variant.shape(), kSeed, Device());
    Row row;
    row.benchmark = std::string(name());
    row.variant = absl::StrCat(
        variant.layers, " layers, cache ",
        variant.cache == DecoderCache::kConcatenated ? "by cat" : "in place",
        variant.prompt_tokens == kPromptTokens
            ? ""
            : absl::StrCat(", behind ", variant.prompt_tokens),
        mode == ExecutionMode::kFast ? ", fast" : ", strict");
    int differences = 0;
    const auto compare = [&](const Generated& expected,
                             const Generated& actual) {
      if (expected.tokens != actual.tokens) ++differences;
    };
    // Every second sequence has new positions, until graphs with size holes are
    // known.
    uint64_t unsettled = 0;
    const Generated first = Generate(local, variant, -1, LocalDevice(options_));
    for (int i = 0; i < kSettlingSequences; ++i) {
      const bool again = i % 2 == 0;
      const int round = again ? -1 : rounds_ + i;
      const Generated settling = Generate(remote, variant, round, Device());
      compare(again ? first
                    : Generate(local, variant, round, LocalDevice(options_)),
              settling);
      unsettled = std::max(unsettled, settling.moved.bytes_up);
    }

    std::vector<Generated> djinn(rounds_), beside(rounds_);
    Statistics moved;
    DJINN_RETURN_IF_ERROR(Interleave(
        rounds_,
        [&](int round) {
          djinn[round] = Generate(remote, variant, round, Device());
          moved = djinn[round].moved;
          CheckTraffic(djinn[round], &row.error);
          return absl::OkStatus();
        },
        [&](int round) {
          beside[round] =
              Generate(local, variant, round, LocalDevice(options_));
          return absl::OkStatus();
        }));
    row.djinn.emplace();
    row.baseline.emplace();
    for (int round = 0; round < rounds_; ++round) {
      compare(beside[round], djinn[round]);
      row.djinn->AddRound(djinn[round].seconds);
      row.baseline->AddRound(beside[round].seconds);
    }
    row.baseline_alone = alone;
    row.baseline_name = LocalEager(options_);
    SetRatio(&row);
    row.numbers["bytes_up_per_token"] =
        static_cast<double>(moved.bytes_up) / kTokens;
    row.numbers["bytes_down_per_token"] =
        static_cast<double>(moved.bytes_down) / kTokens;
    row.numbers["bytes_up_per_token_unsettled"] =
        static_cast<double>(unsettled) / kTokens;
    row.notes.push_back(absl::StrFormat(
        "a token: %s up, %s while settling, %s down",
        FormatBytes(row.numbers["bytes_up_per_token"]),
        FormatBytes(row.numbers["bytes_up_per_token_unsettled"]),
        FormatBytes(row.numbers["bytes_down_per_token"])));
    row.checked = absl::StrCat(rounds_ + kSettlingSequences, " sequences of ",
                               kTokens + 1, " tokens, equal");
    if (differences > 0) {
      row.error = absl::StrCat(differences, " sequences differ");
    }
    rows->push_back(std::move(row));
    return absl::OkStatus();
  }

  // The client sends calls and receives tokens. Keys and values stay on the
  // worker.
  static void CheckTraffic(const Generated& generated, std::string* error) {
    const Statistics& moved = generated.moved;
    const auto cache = static_cast<uint64_t>(generated.cache_bytes);
    ExpectAtLeast("reads", moved.reads, kTokens, error);
    // The program waits for the token only.
    ExpectAtMost("reads", moved.reads, kTokens, error);
    ExpectAtMost("synchronous calls", moved.synchronous_calls, 0, error);
    ExpectAtLeast("bytes down", moved.bytes_down, kTokens * sizeof(int64_t),
                  error);
    ExpectAtMost("bytes down", moved.bytes_down, cache / 20, error);
    ExpectAtMost("bytes up", moved.bytes_up, kTokens * kMaxBytesUp, error);
  }

  const Options options_;
  const int rounds_;
  std::vector<Series> alone_;  // by variant
};

}  // namespace

std::unique_ptr<Benchmark> MakeDecode(const Options& options) {
  return std::make_unique<DecodeBenchmark>(options);
}

}  // namespace djinn::bench
