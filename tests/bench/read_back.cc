// Measures the time until a program has a small result: one operator and a read
// of its result, as plain calls and as a registered callable. Also measures a
// registered callable that copies its argument, and a bare gRPC stream with as
// many bytes.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/add.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/clone.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "c10/core/InferenceMode.h"
#include "common/base/status_macros.h"
#include "djinn/djinn.h"
#include "tests/bench/benchmark.h"
#include "tests/bench/check.h"
#include "tests/bench/floors.h"
#include "tests/bench/report.h"
#include "tests/bench/statistics.h"

namespace djinn::bench {
namespace {

constexpr int kReadsPerRound = 200;
constexpr int64_t kResultElements[] = {1, 256};

// The calls whose result is read.
enum class Work {
  kOperator,
  kRegistered,   // the same as a registered callable
  kNoOperation,  // a registered callable that copies its argument
};

constexpr int kTripsPerRound = 300;
// The size of a run of a small segment with a read, and the size of one with
// some more values.
constexpr size_t kMessageBytes[] = {200, 4096};

std::string UnixAddress() {
  return absl::StrCat("unix:/tmp/djinn-bench-", getpid(), ".sock");
}

// Measures the floors of a round trip, without Djinn.
class PingPongBenchmark : public Benchmark {
 public:
  explicit PingPongBenchmark(const Options& options) : options_(options) {}

  absl::string_view name() const override { return "ping_pong"; }
  bool needs_session() const override { return false; }

  absl::Status Measure(std::vector<Row>* rows) override {
    DJINN_ASSIGN_OR_RETURN(const auto tcp, GrpcPingPong::Start("127.0.0.1:0"));
    DJINN_ASSIGN_OR_RETURN(const auto local,
                           GrpcPingPong::Start(UnixAddress()));
    for (const size_t bytes : kMessageBytes) {
      const auto grpc = [bytes](GrpcPingPong* stream) {
        return [bytes, stream](int count, std::vector<double>* seconds) {
          return stream->Exchange(bytes, bytes, count, seconds);
        };
      };
      const std::string size = FormatBytes(static_cast<double>(bytes));
      DJINN_RETURN_IF_ERROR(
          MeasureOne("gRPC, TCP, " + size, grpc(tcp.get()), rows));
      DJINN_RETURN_IF_ERROR(
          MeasureOne("gRPC, Unix socket, " + size, grpc(local.get()), rows));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status MeasureOne(
      const std::string& variant,
      absl::FunctionRef<absl::Status(int, std::vector<double>*)> exchange,
      std::vector<Row>* rows) {
    Row row;
    row.benchmark = std::string(name());
    row.variant = variant;
    row.baseline_name = "bare round trip";
    row.baseline.emplace();
    DJINN_RETURN_IF_ERROR(MeasureRounds(options_.rounds, [&](int) {
      std::vector<double> warm_up, seconds;
      DJINN_RETURN_IF_ERROR(exchange(kTripsPerRound / 10, &warm_up));
      DJINN_RETURN_IF_ERROR(exchange(kTripsPerRound, &seconds));
      row.baseline->AddRound(std::move(seconds));
      return absl::OkStatus();
    }));
    row.checked = absl::StrCat(row.baseline->All().size(), " echoes");
    rows->push_back(std::move(row));
    return absl::OkStatus();
  }

  const Options options_;
};

class ReadBackBenchmark : public Benchmark {
 public:
  explicit ReadBackBenchmark(const Options& options) : options_(options) {}

  absl::string_view name() const override { return "read_back"; }

  absl::Status Measure(std::vector<Row>* rows) override {
    DJINN_ASSIGN_OR_RETURN(const auto grpc, GrpcPingPong::Start(UnixAddress()));
    for (const Work work :
         {Work::kOperator, Work::kRegistered, Work::kNoOperation}) {
      for (const int64_t elements : kResultElements) {
        DJINN_RETURN_IF_ERROR(MeasureSize(elements, work, grpc.get(), rows));
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status MeasureSize(int64_t elements, Work work, GrpcPingPong* grpc,
                           std::vector<Row>* rows) {
    const bool registered = work != Work::kOperator;
    const bool copies = work == Work::kNoOperation;
    const c10::InferenceMode inference;
    const at::Tensor local = at::arange(elements, at::kFloat);
    const at::Tensor remote = local.to(Device());
    // A registered call's numbers never change, but its argument does.
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

    // Returns the traffic of the round.
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
    // One message each way carries as many bytes as Djinn's.
    const size_t up = std::max<size_t>(moved.bytes_up / kReadsPerRound, 8);
    const size_t down = std::max<size_t>(moved.bytes_down / kReadsPerRound, 8);
    ExpectAtLeast("reads", moved.reads, kReadsPerRound, &error);
    ExpectAtLeast("bytes up of a read", up, 1, &error);
    ExpectAtLeast("bytes down of a read", down, elements * sizeof(float),
                  &error);

    Series djinn, floor;
    DJINN_RETURN_IF_ERROR(Interleave(
        options_.rounds,
        [&](int round) {
          std::vector<double> seconds;
          read_back(round, &seconds);
          djinn.AddRound(std::move(seconds));
          return absl::OkStatus();
        },
        [&](int) {
          std::vector<double> warm_up, streamed;
          DJINN_RETURN_IF_ERROR(
              grpc->Exchange(up, down, kReadsPerRound / 10, &warm_up));
          DJINN_RETURN_IF_ERROR(
              grpc->Exchange(up, down, kReadsPerRound, &streamed));
          floor.AddRound(std::move(streamed));
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
    row.baseline_name = "bare gRPC stream";
    row.baseline = std::move(floor);
    SetRatio(&row);
    row.numbers["bytes_up_per_read"] = static_cast<double>(up);
    row.numbers["bytes_down_per_read"] = static_cast<double>(down);
    row.notes.push_back(
        absl::StrFormat("%d B up and %d B down each; baseline: %s", up, down,
                        row.baseline_name));
    agreement.ExpectWithin(0, "results", &error);
    row.checked = agreement.Describe("results");
    row.error = error;
    rows->push_back(std::move(row));
    return absl::OkStatus();
  }

  static double Argument(int i) { return i * 3; }
  // Returns another value every time, so that a stale answer is detected.
  static double Summand(int round, int i) {
    return round * kReadsPerRound + i + 0.5;
  }

  const Options options_;
};

}  // namespace

std::unique_ptr<Benchmark> MakePingPong(const Options& options) {
  return std::make_unique<PingPongBenchmark>(options);
}

std::unique_ptr<Benchmark> MakeReadBack(const Options& options) {
  return std::make_unique<ReadBackBenchmark>(options);
}

}  // namespace djinn::bench
