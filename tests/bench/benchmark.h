// Defines the interface of a benchmark, and what benchmarks share.
#ifndef TESTS_BENCH_BENCHMARK_H_
#define TESTS_BENCH_BENCHMARK_H_

#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "djinn/connect.h"
#include "djinn/embedded_cluster.h"
#include "tests/bench/report.h"

namespace djinn::bench {

struct Options {
  // Number of repetitions of each measurement; at least 1.
  int rounds = 9;
  // Threads of the worker, and of local baselines that use more than one.
  int threads = 2;
  // Device of the worker and of local baselines of models: "cpu", "cuda:0".
  std::string device = "cpu";
  // Folder of the sentence encoder.
  std::string model_folder;
  // Number of sessions and workers of the idle_sessions benchmark.
  int idle_sessions = 3000;
  int idle_workers = 1;
};

// Return the device of local baselines, and their name in a row.
at::Device LocalDevice(const Options& options);
std::string LocalEager(const Options& options);

// Returns the options of the cluster that benchmarks run on.
EmbeddedClusterOptions ClusterOptions(const Options& options);

// Returns the worker's transport, which a row's variant names: "shared memory".
absl::StatusOr<std::string> Transport();

// A benchmark. The runner calls MeasureAlone() and Measure(), and then the
// destructor. The two functions may throw PyTorch's exceptions, which the
// runner reports as failures.
class Benchmark {
 public:
  virtual ~Benchmark() = default;

  virtual absl::string_view name() const = 0;

  // Returns whether Measure() needs an open session, on a cluster of one
  // worker. Otherwise no cluster is alive.
  virtual bool needs_session() const { return true; }

  // Measures the local baselines, while no Djinn process is alive.
  virtual absl::Status MeasureAlone() { return absl::OkStatus(); }

  // Measures and appends rows. A wrong output is an error in its row. Returns
  // the error that prevents the measurement.
  virtual absl::Status Measure(std::vector<Row>* rows) = 0;
};

std::unique_ptr<Benchmark> MakePingPong(const Options& options);
std::unique_ptr<Benchmark> MakeIdleSessions(const Options& options);
std::unique_ptr<Benchmark> MakeSharedRows(const Options& options);
std::unique_ptr<Benchmark> MakeStages(const Options& options);
std::unique_ptr<Benchmark> MakeCaptureAndShip(const Options& options);
std::unique_ptr<Benchmark> MakeReadBack(const Options& options);
std::unique_ptr<Benchmark> MakeEncoder(const Options& options);
std::unique_ptr<Benchmark> MakeDecode(const Options& options);
std::unique_ptr<Benchmark> MakeMlpStep(const Options& options);
std::unique_ptr<Benchmark> MakeTransfer(const Options& options);
std::unique_ptr<Benchmark> MakeTransferOverTcp(const Options& options);
std::unique_ptr<Benchmark> MakeSecondStart(const Options& options);
std::unique_ptr<Benchmark> MakeDecodeBatch(const Options& options);
std::unique_ptr<Benchmark> MakeInteractive(const Options& options);
std::unique_ptr<Benchmark> MakeDistance(const Options& options);

// The following benchmarks' helpers run in processes of their own. The runner's
// first argument selects one. A helper reads the arguments after it, writes its
// result to standard output and returns the exit status.

// Arguments: COORDINATOR TOKEN_FILE TRANSPORT SEED MEBIBYTES. Connects, moves a
// model of that size to the device, computes with it and prints the time, the
// bytes sent and the result.
inline constexpr char kLoadModel[] = "--load_model";
int LoadModel(int argc, char** argv);

// Arguments: COORDINATOR TOKEN_FILE LAYERS. Connects, moves the decoder to the
// device in fast mode and prints "ready". For an input line "PROMPT TOKENS" it
// reads a prompt of that many tokens and prints "prompt". For the next input
// line it generates, and prints the seconds that each token took, and the
// tokens.
inline constexpr char kDecode[] = "--decode_session";
int DecodeSession(int argc, char** argv);

// Arguments: COORDINATOR TOKEN_FILE CLASS. Connects, prints "training" and
// trains until its input ends. Prints "trained" and the number of steps if the
// losses equal those of the same training on the CPU, otherwise the error.
inline constexpr char kTrain[] = "--train";
int Train(int argc, char** argv);

// Runs one round of one side of a comparison.
using Side = absl::FunctionRef<absl::Status(int round)>;

// Runs rounds 0, 1, ... of one side. Stops at the first error.
absl::Status MeasureRounds(int rounds, Side side);

// Connects, calls `work` and closes. Returns the first error.
absl::Status InSession(const ConnectOptions& connect,
                       absl::FunctionRef<absl::Status()> work);

// Calls `work` in a session. Its device 0 has `workers` workers of one thread
// each, and its device 1 is on one of these workers. Local operators use one
// thread.
absl::Status WithDeviceOf(int workers, absl::FunctionRef<absl::Status()> work);

// Runs rounds of two sides in turn. The sides alternate in who is first, too.
absl::Status Interleave(int rounds, Side a, Side b);

}  // namespace djinn::bench

#endif  // TESTS_BENCH_BENCHMARK_H_
