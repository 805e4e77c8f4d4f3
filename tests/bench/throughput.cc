// Requests that cost next to nothing, from many clients through one worker,
// beside the same clients at a bare gRPC echo.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "djinn/djinn.h"
#include "tests/bench/benchmark.h"
#include "tests/bench/child_process.h"

namespace djinn::bench {
namespace {

constexpr int kClients = 16;
constexpr int kRequestsPerRound = 500;  // of each client
constexpr int kWindows[] = {1, 8};

// Clients in a process of their own, at one server.
class Peer {
 public:
  static absl::StatusOr<Peer> Start(std::vector<std::string> arguments) {
    arguments.push_back(absl::StrCat(kClients));
    Peer peer;
    DJINN_ASSIGN_OR_RETURN(
        peer.process_,
        ChildProcess::Start(SiblingProgram("throughput_peer"), arguments));
    DJINN_ASSIGN_OR_RETURN(const std::string line, peer.process_->ReadLine());
    if (line != "ready") return absl::InternalError(line);
    return peer;
  }

  // Seconds per request.
  absl::StatusOr<double> Run(int window) {
    DJINN_RETURN_IF_ERROR(
        process_->WriteLine(absl::StrCat(window, " ", kRequestsPerRound)));
    DJINN_ASSIGN_OR_RETURN(const std::string line, process_->ReadLine());
    double seconds;
    if (!absl::SimpleAtod(line, &seconds)) return absl::InternalError(line);
    return seconds / (kClients * kRequestsPerRound);
  }

 private:
  std::unique_ptr<ChildProcess> process_;
};

// Where the bare server's callback echo listens on its Unix socket.
absl::StatusOr<std::string> EchoAddress(ChildProcess* server) {
  for (int i = 0; i < 4; ++i) {
    DJINN_ASSIGN_OR_RETURN(const std::string line, server->ReadLine());
    constexpr absl::string_view kName = "unix/callback ";
    if (absl::StartsWith(line, kName)) return line.substr(kName.size());
  }
  return absl::InternalError("the bare gRPC server names no socket");
}

class ThroughputBenchmark : public Benchmark {
 public:
  explicit ThroughputBenchmark(const Options& options) : options_(options) {}

  absl::string_view name() const override { return "throughput"; }
  bool needs_session() const override { return false; }

  absl::Status Measure(std::vector<Row>* rows) override {
    DJINN_ASSIGN_OR_RETURN(const auto cluster,
                           EmbeddedCluster::Start(ClusterOptions(options_)));
    const ConnectOptions connect = cluster->connect_options();
    DJINN_ASSIGN_OR_RETURN(
        const auto server,
        ChildProcess::Start(SiblingProgram("ping_pong_server"), {}));
    DJINN_ASSIGN_OR_RETURN(const std::string address,
                           EchoAddress(server.get()));
    DJINN_ASSIGN_OR_RETURN(Peer echo, Peer::Start({"echo", address}));
    for (const std::string transport : {"grpc", "shared_memory"}) {
      DJINN_ASSIGN_OR_RETURN(
          Peer djinn,
          Peer::Start({transport, connect.coordinator, connect.token_file}));
      for (const int window : kWindows) {
        DJINN_RETURN_IF_ERROR(
            MeasureWindow(transport, window, &djinn, &echo, rows));
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status MeasureWindow(const std::string& transport, int window,
                             Peer* djinn, Peer* echo, std::vector<Row>* rows) {
    DJINN_RETURN_IF_ERROR(djinn->Run(window).status());
    DJINN_RETURN_IF_ERROR(echo->Run(window).status());
    Series requests, echoes;
    DJINN_RETURN_IF_ERROR(Interleave(
        options_.rounds,
        [&](int) {
          DJINN_ASSIGN_OR_RETURN(const double seconds, djinn->Run(window));
          requests.AddRound({seconds});
          return absl::OkStatus();
        },
        [&](int) {
          DJINN_ASSIGN_OR_RETURN(const double seconds, echo->Run(window));
          echoes.AddRound({seconds});
          return absl::OkStatus();
        }));
    Row row;
    row.benchmark = std::string(name());
    row.variant =
        absl::StrFormat("%d clients, window %d, %s", kClients, window,
                        transport == "grpc" ? "gRPC" : "shared memory");
    row.djinn = std::move(requests);
    row.baseline_name = "bare gRPC callback echo, unix";
    row.baseline = std::move(echoes);
    SetRatio(&row);
    const double served = 1 / Median(row.djinn->RoundMedians());
    const double echoed = 1 / Median(row.baseline->RoundMedians());
    row.numbers["requests_per_second"] = served;
    row.numbers["echoes_per_second"] = echoed;
    row.notes.push_back(
        absl::StrFormat("%.0f requests/s (a run and a read each) beside %.0f "
                        "echoes/s: %.2f times",
                        served, echoed, served / echoed));
    row.checked = absl::StrCat(
        (options_.rounds + 1) * kClients * kRequestsPerRound, " answers");
    rows->push_back(std::move(row));
    return absl::OkStatus();
  }

  const Options options_;
};

}  // namespace

std::unique_ptr<Benchmark> MakeThroughput(const Options& options) {
  return std::make_unique<ThroughputBenchmark>(options);
}

}  // namespace djinn::bench
