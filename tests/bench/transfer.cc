// Measures transfers of tensors to the device and back: in the session that all
// benchmarks share, and over TCP, as from another machine. The baseline is a
// raw TCP socket.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "djinn/djinn.h"
#include "tests/bench/benchmark.h"
#include "tests/bench/check.h"
#include "tests/bench/floors.h"
#include "tests/bench/report.h"
#include "tests/bench/statistics.h"
#include "tests/bench/tenant_cluster.h"

namespace djinn::bench {
namespace {

constexpr size_t kMebibyte = size_t{1} << 20;
constexpr size_t kSizes[] = {1 * kMebibyte, 16 * kMebibyte, 128 * kMebibyte,
                             1024 * kMebibyte};
// From this size on, the allocator returns memory to the system at once.
constexpr size_t kAlwaysFresh = 64 * kMebibyte;
// Rounds of the largest sizes.
constexpr int kMaxLongRounds = 5;

struct Transfers {
  Series upload, download;
};

class TransferBenchmark : public Benchmark {
 public:
  // `over_tcp` uses a worker of its own.
  TransferBenchmark(const Options& options, bool over_tcp)
      : options_(options), over_tcp_(over_tcp) {}

  absl::string_view name() const override {
    return over_tcp_ ? "transfer_tcp" : "transfer";
  }
  bool needs_session() const override { return !over_tcp_; }

  absl::Status Measure(std::vector<Row>* rows) override {
    if (over_tcp_) return MeasureOverTcp(rows);
    DJINN_ASSIGN_OR_RETURN(transport_, Transport());
    return MeasureSizes(rows);
  }

 private:
  absl::Status MeasureOverTcp(std::vector<Row>* rows) {
    DJINN_ASSIGN_OR_RETURN(
        const auto cluster,
        TenantCluster::Start(
            {.tenants = {"one"},
             .of_tenants = "share_contents: false",
             .worker_listens = "127.0.0.1:0",
             .of_worker = absl::StrCat("device: {memory: 8GiB, threads: ",
                                       options_.threads, "}\n")}));
    ConnectOptions connect = cluster->connect_options("one");
    connect.shared_memory = false;
    transport_ = "TCP";
    return InSession(connect, [&] { return MeasureSizes(rows); });
  }

  absl::Status MeasureSizes(std::vector<Row>* rows) {
    DJINN_ASSIGN_OR_RETURN(const auto raw, RawSocket::Start());
    for (const size_t size : kSizes) {
      DJINN_RETURN_IF_ERROR(MeasureSize(size, raw.get(), rows));
    }
    return absl::OkStatus();
  }

  absl::Status MeasureSize(size_t size, RawSocket* raw,
                           std::vector<Row>* rows) {
    Transfers djinn, floor, ignored;
    std::string error;
    // Keeps downloads until the end, because memory that is freed and allocated
    // once more would not be fresh.
    std::vector<at::Tensor> kept;
    const auto move_remote = [&](int round, Transfers* transfers) {
      at::Tensor moved = MoveOnce(Seed(size, round), size, transfers, &error);
      if (size < kAlwaysFresh) kept.push_back(std::move(moved));
      return absl::OkStatus();
    };
    const auto move_raw = [&](int round, Transfers* transfers) {
      const uint64_t seed = Seed(size, round);
      for (Series* series : {&transfers->upload, &transfers->download}) {
        DJINN_ASSIGN_OR_RETURN(const double seconds, raw->Move(seed, size));
        series->AddRound({seconds});
      }
      return absl::OkStatus();
    };
    DJINN_RETURN_IF_ERROR(move_remote(-1, &ignored));
    DJINN_RETURN_IF_ERROR(move_raw(-1, &ignored));
    const int rounds = size == kSizes[std::size(kSizes) - 1]
                           ? std::min(options_.rounds, kMaxLongRounds)
                           : options_.rounds;
    DJINN_RETURN_IF_ERROR(Interleave(
        rounds, [&](int round) { return move_remote(round, &djinn); },
        [&](int round) { return move_raw(round, &floor); }));

    AddRow("upload", size, std::move(djinn.upload), std::move(floor.upload),
           error, rows);
    AddRow("download", size, std::move(djinn.download),
           std::move(floor.download), error, rows);
    return absl::OkStatus();
  }

  // Uploads, downloads and compares. Returns the download.
  static at::Tensor MoveOnce(uint64_t seed, size_t size, Transfers* transfers,
                             std::string* error) {
    const at::Tensor source =
        at::empty({static_cast<int64_t>(size)}, at::kByte);
    Fill(seed, source.mutable_data_ptr(), size);

    Statistics before = GetStatistics();
    double start = WallNow();
    const at::Tensor remote = source.to(Device());
    const absl::Status arrived = Synchronize();
    transfers->upload.AddRound({WallNow() - start});
    Statistics moved = GetStatistics() - before;
    if (!arrived.ok()) absl::StrAppend(error, arrived.ToString());
    ExpectAtLeast("bytes up", moved.bytes_up, size, error);
    ExpectAtLeast("uploads sent", moved.uploads_sent, 1, error);
    ExpectAtMost("uploads of bytes already held", moved.uploads_already_held, 0,
                 error);

    before = GetStatistics();
    start = WallNow();
    at::Tensor result = remote.to(at::kCPU);
    transfers->download.AddRound({WallNow() - start});
    moved = GetStatistics() - before;
    ExpectAtLeast("bytes down", moved.bytes_down, size, error);
    if (result.nbytes() != size ||
        !IsFilled(seed, result.const_data_ptr(), size)) {
      absl::StrAppend(error, error->empty() ? "" : "; ",
                      "other bytes came back");
    }
    return result;
  }

  void AddRow(const std::string& direction, size_t size, Series djinn,
              Series floor, const std::string& error, std::vector<Row>* rows) {
    const double bytes = static_cast<double>(size);
    Row row;
    row.benchmark = std::string(name());
    row.variant = absl::StrFormat("%s %d MiB, %s", direction, size / kMebibyte,
                                  transport_);
    row.djinn = std::move(djinn);
    row.baseline_name = "raw TCP socket into fresh memory";
    row.baseline = std::move(floor);
    SetRatio(&row);
    row.numbers["bytes"] = bytes;
    row.notes.push_back(absl::StrCat(
        FormatRate(bytes, Median(row.djinn->RoundMedians())), " beside ",
        FormatRate(bytes, Median(row.baseline->RoundMedians()))));
    row.checked = absl::StrCat(row.djinn->rounds(), " times, every byte");
    row.error = error;
    rows->push_back(std::move(row));
  }

  // Returns another seed in every round, because the worker would already have
  // the same bytes.
  static uint64_t Seed(size_t size, int round) {
    return size + static_cast<uint64_t>(round + 1);
  }

  const Options options_;
  const bool over_tcp_;
  std::string transport_;
};

}  // namespace

std::unique_ptr<Benchmark> MakeTransfer(const Options& options) {
  return std::make_unique<TransferBenchmark>(options, /*over_tcp=*/false);
}

std::unique_ptr<Benchmark> MakeTransferOverTcp(const Options& options) {
  return std::make_unique<TransferBenchmark>(options, /*over_tcp=*/true);
}

}  // namespace djinn::bench
