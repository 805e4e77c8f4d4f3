// Measures a real sentence encoder, moved to the device as a program would move
// it.
#include "client_lib/examples/sentence_similarity/encoder.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "djinn/djinn.h"
#include "tests/bench/benchmark.h"
#include "tests/bench/check.h"
#include "tests/bench/report.h"
#include "tests/bench/statistics.h"

namespace djinn::bench {
namespace {

using examples::Encoder;

constexpr double kTolerance = 1e-5;

// The model has six layers. Two passes through it are a model of twelve layers.
struct Shape {
  int passes;
  size_t sentences;
  size_t tokens;
  int calls_per_round;
};
constexpr Shape kShapes[] = {{1, 1, 32, 10}, {1, 8, 32, 4},  {1, 1, 128, 5},
                             {1, 8, 128, 1}, {2, 1, 32, 10}, {2, 8, 32, 4},
                             {2, 1, 128, 5}, {2, 8, 128, 1}};
// The encoder that is loaded for a shape.
using Model = std::pair<int, size_t>;
Model ModelOf(const Shape& shape) { return {shape.passes, shape.tokens}; }

// After these calls, a worker has made its choices and, in fast mode, packed
// the weights.
constexpr int kSettlingCalls = 60;

constexpr const char* kWords[] = {
    "the",    "cat",   "outside", "man",   "plays", "guitar", "new",   "movie",
    "great",  "woman", "watches", "dog",   "in",    "garden", "river", "train",
    "late",   "city",  "people",  "water", "house", "small",  "music", "night",
    "reads",  "book",  "about",   "war",   "old",   "school", "north", "island",
    "market", "price", "rises",   "after", "rain",  "light",  "green", "field",
};

// Returns the same sentences for the same seed. Each has at least `words`
// tokens, so that an encoder which cuts off there sees exactly that many.
std::vector<std::string> MakeSentences(uint64_t seed, size_t sentences,
                                       size_t words) {
  std::mt19937_64 generator(seed);
  std::vector<std::string> made(sentences);
  for (std::string& sentence : made) {
    for (size_t i = 0; i < words; ++i) {
      absl::StrAppend(&sentence, i == 0 ? "" : " ",
                      kWords[generator() % std::size(kWords)]);
    }
  }
  return made;
}

// Embeddings, and their time and traffic.
struct Encoded {
  std::vector<at::Tensor> embeddings;
  std::vector<double> seconds;
};

class EncoderBenchmark : public Benchmark {
 public:
  explicit EncoderBenchmark(const Options& options) : options_(options) {}

  absl::string_view name() const override { return "encoder"; }

  absl::Status MeasureAlone() override {
    at::set_num_threads(options_.threads);
    for (const Shape& shape : kShapes) {
      std::unique_ptr<Encoder>& service = local_[ModelOf(shape)];
      if (service == nullptr) {
        DJINN_ASSIGN_OR_RETURN(service, Load(shape, LocalDevice(options_)));
      }
      DJINN_RETURN_IF_ERROR(Encode(*service, shape, -1).status());
      DJINN_RETURN_IF_ERROR(MeasureRounds(options_.rounds, [&](int round) {
        DJINN_ASSIGN_OR_RETURN(Encoded encoded, Encode(*service, shape, round));
        alone_[&shape].AddRound(std::move(encoded.seconds));
        return absl::OkStatus();
      }));
    }
    return absl::OkStatus();
  }

  absl::Status Measure(std::vector<Row>* rows) override {
    at::set_num_threads(options_.threads);
    // One encoder at a time. From the second on, the worker knows its weights.
    Model loaded;
    std::unique_ptr<Encoder> service;
    for (const Shape& shape : kShapes) {
      const Statistics before = GetStatistics();
      const double start = WallNow();
      const bool loads = ModelOf(shape) != loaded;
      if (loads) {
        service.reset();
        DJINN_ASSIGN_OR_RETURN(service, Load(shape, Device()));
      }
      DJINN_ASSIGN_OR_RETURN(const Encoded first, Encode(*service, shape, -1));
      const double first_seconds = WallNow() - start;
      const Statistics moved = GetStatistics() - before;
      for (const ExecutionMode mode :
           {ExecutionMode::kStrict, ExecutionMode::kFast}) {
        Row row;
        row.benchmark = std::string(name());
        row.variant = absl::StrFormat(
            "%sbatch %d, sequence %d, %s",
            shape.passes == 1 ? "" : "12 layers, ", shape.sentences,
            shape.tokens, mode == ExecutionMode::kFast ? "fast" : "strict");
        if (loads && mode == ExecutionMode::kStrict) {
          NoteLoad(/*again=*/loaded != Model(), moved, first_seconds, &row);
        }
        SetExecutionMode(mode);
        const absl::Status measured =
            MeasureShape(shape, *service, first, &row);
        SetExecutionMode(ExecutionMode::kStrict);
        DJINN_RETURN_IF_ERROR(measured);
        rows->push_back(std::move(row));
      }
      loaded = ModelOf(shape);
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<std::unique_ptr<Encoder>> Load(const Shape& shape,
                                                at::Device device) const {
    return Encoder::Load({.model_folder = options_.model_folder,
                          .device = device,
                          .max_tokens = shape.tokens,
                          .passes = shape.passes});
  }

  // Encodes other sentences in every call of every round.
  static absl::StatusOr<Encoded> Encode(const Encoder& service,
                                        const Shape& shape, int round) {
    Encoded encoded;
    for (int call = 0; call < shape.calls_per_round; ++call) {
      const std::vector<std::string> sentences =
          MakeSentences(static_cast<uint64_t>(1000 * (round + 1) + call),
                        shape.sentences, shape.tokens);
      const double start = WallNow();
      DJINN_ASSIGN_OR_RETURN(at::Tensor embeddings, service.Encode(sentences));
      encoded.seconds.push_back(WallNow() - start);
      encoded.embeddings.push_back(std::move(embeddings));
    }
    return encoded;
  }

  // Notes the cost of the first answer after loading, and checks that the
  // weights crossed the wire exactly once.
  void NoteLoad(bool again, const Statistics& moved, double seconds, Row* row) {
    const uint64_t weights = std::filesystem::file_size(options_.model_folder +
                                                        "/model.safetensors");
    row->notes.push_back(
        absl::StrCat(again ? "load once more" : "load",
                     " and first round: ", FormatSeconds(seconds), ", ",
                     FormatBytes(static_cast<double>(moved.bytes_up)), " up"));
    row->numbers["bytes_up_first"] = static_cast<double>(moved.bytes_up);
    row->numbers["seconds_first"] = seconds;
    if (again) {
      ExpectAtMost("bytes up of a second load", moved.bytes_up, weights / 50,
                   &row->error);
    } else {
      // A small part of the file is names and sizes.
      ExpectAtLeast("bytes up of the first load", moved.bytes_up,
                    weights / 10 * 9, &row->error);
    }
  }

  absl::Status MeasureShape(const Shape& shape, const Encoder& service,
                            const Encoded& first, Row* row) {
    Encoder& local = *local_[ModelOf(shape)];
    Agreement agreement;
    const auto compare = [&](const Encoded& expected, const Encoded& actual) {
      for (size_t i = 0; i < expected.embeddings.size(); ++i) {
        agreement.Add(expected.embeddings[i], actual.embeddings[i]);
      }
    };
    DJINN_ASSIGN_OR_RETURN(const Encoded local_first, Encode(local, shape, -1));
    compare(local_first, first);
    for (int calls = 0; calls < kSettlingCalls;
         calls += shape.calls_per_round) {
      DJINN_ASSIGN_OR_RETURN(const Encoded settled, Encode(service, shape, -1));
      compare(local_first, settled);
    }

    std::vector<Encoded> djinn(options_.rounds), beside(options_.rounds);
    Statistics moved;
    DJINN_RETURN_IF_ERROR(Interleave(
        options_.rounds,
        [&](int round) {
          const Statistics before = GetStatistics();
          DJINN_ASSIGN_OR_RETURN(djinn[round], Encode(service, shape, round));
          moved = GetStatistics() - before;
          CheckTraffic(shape, moved, &row->error);
          return absl::OkStatus();
        },
        [&](int round) {
          DJINN_ASSIGN_OR_RETURN(beside[round], Encode(local, shape, round));
          return absl::OkStatus();
        }));

    row->djinn.emplace();
    row->baseline.emplace();
    for (int round = 0; round < options_.rounds; ++round) {
      compare(beside[round], djinn[round]);
      row->djinn->AddRound(djinn[round].seconds);
      row->baseline->AddRound(beside[round].seconds);
    }
    row->baseline_alone = alone_[&shape];
    row->baseline_name = LocalEager(options_);
    SetRatio(row);
    const double calls = shape.calls_per_round;
    row->numbers["bytes_up_warm"] = static_cast<double>(moved.bytes_up) / calls;
    row->numbers["bytes_down_warm"] =
        static_cast<double>(moved.bytes_down) / calls;
    row->notes.push_back(absl::StrCat(
        "warm: ", FormatBytes(row->numbers["bytes_up_warm"]), " up, ",
        FormatBytes(row->numbers["bytes_down_warm"]), " down"));
    row->checked = agreement.Describe("embeddings");
    agreement.ExpectWithin(kTolerance, "embeddings", &row->error);
    return absl::OkStatus();
  }

  // A warm call sends tokens and receives embeddings. The weights stay on the
  // worker.
  void CheckTraffic(const Shape& shape, const Statistics& moved,
                    std::string* error) const {
    const uint64_t calls = static_cast<uint64_t>(shape.calls_per_round);
    const uint64_t tokens = shape.sentences * shape.tokens;
    const uint64_t width =
        static_cast<uint64_t>(local_.at(ModelOf(shape))->width());
    ExpectAtLeast("warm bytes up", moved.bytes_up,
                  calls * tokens * sizeof(int64_t), error);
    ExpectAtMost("warm bytes up", moved.bytes_up, calls * (256 << 10), error);
    ExpectAtLeast("warm bytes down", moved.bytes_down,
                  calls * shape.sentences * width * sizeof(float), error);
    ExpectAtMost("warm synchronous calls", moved.synchronous_calls, 0, error);
  }

  const Options options_;
  std::map<Model, std::unique_ptr<Encoder>> local_;
  std::map<const Shape*, Series> alone_;
};

}  // namespace

std::unique_ptr<Benchmark> MakeEncoder(const Options& options) {
  return std::make_unique<EncoderBenchmark>(options);
}

}  // namespace djinn::bench
