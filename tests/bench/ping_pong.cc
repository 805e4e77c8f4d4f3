// The floor of a round trip over gRPC, without Djinn.
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "tests/bench/benchmark.h"
#include "tests/bench/format.h"
#include "tests/bench/ping_pong_peer.h"

namespace djinn::bench {
namespace {

constexpr int kTripsPerRound = 300;
// A run of a small segment with a read, and one with some more values.
constexpr size_t kMessageBytes[] = {200, 4096};

class PingPongBenchmark : public Benchmark {
 public:
  explicit PingPongBenchmark(const Options& options) : options_(options) {}

  absl::string_view name() const override { return "ping_pong"; }
  bool needs_session() const override { return false; }

  absl::Status Measure(std::vector<Row>* rows) override {
    DJINN_ASSIGN_OR_RETURN(const auto peer, PingPongPeer::Start());
    for (const size_t bytes : kMessageBytes) {
      std::map<std::string, Series> series;
      DJINN_RETURN_IF_ERROR(MeasureRounds(options_.rounds, [&](int) {
        for (auto& [name, stream] : peer->streams()) {
          std::vector<double> warm_up, seconds;
          DJINN_RETURN_IF_ERROR(
              stream->Exchange(bytes, bytes, kTripsPerRound / 10, &warm_up));
          DJINN_RETURN_IF_ERROR(
              stream->Exchange(bytes, bytes, kTripsPerRound, &seconds));
          series[name].AddRound(std::move(seconds));
        }
        return absl::OkStatus();
      }));
      for (const auto& [name, samples] : series) {
        Row row;
        row.benchmark = std::string(this->name());
        row.variant = absl::StrCat(name, " ", FormatBytes(bytes));
        row.baseline_name = "bare gRPC stream";
        row.baseline = samples;
        row.numbers["message_bytes"] = static_cast<double>(bytes);
        row.checked = absl::StrCat(samples.All().size(), " echoes");
        rows->push_back(std::move(row));
      }
    }
    return absl::OkStatus();
  }

 private:
  const Options options_;
};

}  // namespace

std::unique_ptr<Benchmark> MakePingPong(const Options& options) {
  return std::make_unique<PingPongBenchmark>(options);
}

}  // namespace djinn::bench
