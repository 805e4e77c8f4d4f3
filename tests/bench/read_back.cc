// How long a program waits for a small result: one operator and a read of what
// it made, called as ever or as a registered callable, and a registered model
// that hands on what it is given; beside a bare gRPC stream that carries as
// many bytes.
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/add.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/clone.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "c10/core/InferenceMode.h"
#include "common/status_macros.h"
#include "djinn/djinn.h"
#include "tests/bench/benchmark.h"
#include "tests/bench/check.h"
#include "tests/bench/futex_ping_pong.h"
#include "tests/bench/ping_pong_peer.h"
#include "tests/bench/stopwatch.h"

namespace djinn::bench {
namespace {

constexpr int kReadsPerRound = 200;
constexpr int64_t kResultElements[] = {1, 256};

// What is waited for.
enum class Work {
  kOperator,
  kRegistered,   // the same as a registered callable
  kNoOperation,  // a registered callable that copies its argument
};

class ReadBackBenchmark : public Benchmark {
 public:
  explicit ReadBackBenchmark(const Options& options) : options_(options) {}

  absl::string_view name() const override { return "read_back"; }

  absl::Status Measure(std::vector<Row>* rows) override {
    DJINN_ASSIGN_OR_RETURN(const auto peer, PingPongPeer::Start());
    DJINN_ASSIGN_OR_RETURN(const auto futex, FutexPingPong::Start());
    for (const Work work :
         {Work::kOperator, Work::kRegistered, Work::kNoOperation}) {
      for (const int64_t elements : kResultElements) {
        DJINN_RETURN_IF_ERROR(
            MeasureSize(elements, work, peer.get(), futex.get(), rows));
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status MeasureSize(int64_t elements, Work work, PingPongPeer* peer,
                           FutexPingPong* futex, std::vector<Row>* rows) {
    const bool registered = work != Work::kOperator;
    const bool copies = work == Work::kNoOperation;
    const c10::InferenceMode inference;
    const at::Tensor local = at::arange(elements, at::kFloat);
    const at::Tensor remote = local.to(Device());
    // A registered call's numbers never change: its argument does.
    std::vector<at::Tensor> arguments;
    for (int i = 0; registered && i < kReadsPerRound; ++i) {
      arguments.push_back(at::add(remote, Argument(i)));
    }
    CompiledFunction model([copies](const std::vector<at::Tensor>& in) {
      return std::vector<at::Tensor>{copies ? at::clone(in[0])
                                            : at::add(in[0], 0.5)};
    });
    const auto call = [&](int round, int i) {
      return registered ? model({arguments[i]})[0]
                        : at::add(remote, Summand(round, i));
    };
    const auto expected = [&](int round, int i) {
      if (!registered) return at::add(local, Summand(round, i));
      const at::Tensor argument = at::add(local, Argument(i));
      return copies ? argument : at::add(argument, 0.5);
    };
    Agreement agreement;
    std::string error;

    // Returns what the round moved.
    const auto read_back = [&](int round, std::vector<double>* seconds) {
      std::vector<at::Tensor> results(kReadsPerRound);
      const Statistics before = GetStatistics();
      for (int i = 0; i < kReadsPerRound; ++i) {
        const double start = WallNow();
        results[i] = call(round, i).to(at::kCPU);
        seconds->push_back(WallNow() - start);
      }
      const Statistics delta = GetStatistics() - before;
      for (int i = 0; i < kReadsPerRound; ++i) {
        agreement.Add(expected(round, i), results[i]);
      }
      return delta;
    };
    std::vector<double> warm_up;
    read_back(-1, &warm_up);
    const Statistics moved = read_back(-2, &warm_up);
    // A message each way carries what Djinn's carry.
    const size_t up = moved.bytes_up / kReadsPerRound;
    const size_t down = moved.bytes_down / kReadsPerRound;
    ExpectAtLeast("reads", moved.reads, kReadsPerRound, &error);
    ExpectAtLeast("bytes up of a read", up, 1, &error);
    ExpectAtLeast("bytes down of a read", down, elements * sizeof(float),
                  &error);

    Series djinn, words;
    std::map<std::string, Series> floors;
    DJINN_RETURN_IF_ERROR(Interleave(
        options_.rounds,
        [&](int round) {
          std::vector<double> seconds;
          read_back(round, &seconds);
          djinn.AddRound(std::move(seconds));
          return absl::OkStatus();
        },
        [&](int) {
          for (auto& [name, stream] : peer->streams()) {
            if (!absl::StartsWith(name, "unix/")) continue;
            std::vector<double> warm_up, seconds;
            DJINN_RETURN_IF_ERROR(
                stream->Exchange(up, down, kReadsPerRound / 10, &warm_up));
            DJINN_RETURN_IF_ERROR(
                stream->Exchange(up, down, kReadsPerRound, &seconds));
            floors[name].AddRound(std::move(seconds));
          }
          std::vector<double> seconds;
          DJINN_RETURN_IF_ERROR(futex->Exchange(kReadsPerRound, &seconds));
          words.AddRound(std::move(seconds));
          return absl::OkStatus();
        }));

    Row row;
    row.benchmark = std::string(name());
    DJINN_ASSIGN_OR_RETURN(const std::string transport, Transport());
    row.variant =
        absl::StrFormat("%d B result, %s%s%s", elements * sizeof(float),
                        registered ? "registered, " : "",
                        copies ? "no operation, " : "", transport);
    if (registered && model.statistics().replays == 0) {
      error = absl::StrCat("not registered: ", model.statistics().refusal);
    }
    row.djinn = std::move(djinn);
    for (auto& [name, series] : floors) {
      if (row.baseline.has_value() && Median(row.baseline->RoundMedians()) <=
                                          Median(series.RoundMedians())) {
        continue;
      }
      row.baseline_name = absl::StrCat("bare gRPC stream, ", name);
      row.baseline = series;
    }
    SetRatio(&row);
    row.numbers["bytes_up_per_read"] = static_cast<double>(up);
    row.numbers["bytes_down_per_read"] = static_cast<double>(down);
    row.notes.push_back(
        absl::StrFormat("%d B up and %d B down each; baseline: %s", up, down,
                        row.baseline_name));
    agreement.ExpectWithin(0, "results", &error);
    row.checked = agreement.Describe("results");
    row.error = error;
    rows->push_back(row);
    if (transport != "shared memory") return absl::OkStatus();
    row.variant += ", to a futex";
    row.baseline_name = "futex ping-pong of two processes";
    row.baseline = std::move(words);
    row.notes = {"baseline: " + row.baseline_name};
    SetRatio(&row);
    rows->push_back(std::move(row));
    return absl::OkStatus();
  }

  static double Argument(int i) { return i * 3; }
  // Another one every time, so that no answer can be an earlier one's.
  static double Summand(int round, int i) {
    return round * kReadsPerRound + i + 0.5;
  }

  const Options options_;
};

}  // namespace

std::unique_ptr<Benchmark> MakeReadBack(const Options& options) {
  return std::make_unique<ReadBackBenchmark>(options);
}

}  // namespace djinn::bench
