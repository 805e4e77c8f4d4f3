// Measures where a program's time goes, in this process and on the workers:
//
//   djinn::ProfileScope scope;
//   for (...) model(input).cpu();
//   absl::StatusOr<djinn::Profile> profile = scope.Finish();
//   if (profile.ok()) puts(profile->StageTable().c_str());
//
// A request begins with a thread's first call on a device after its last
// request, and ends when a value that the thread reads has arrived. Its time is
// divided into twelve latency components without gaps or overlaps. A component
// counts only while the program waits for it: time during which the program
// still captures is capture, even if the worker already executes.
// Profile::operators counts everything that was executed.
//
// One scope may be open at a time, for all devices and threads of the process.
// Nothing is measured while no scope is open. Durations are absl::Durations;
// times are points on this process's monotonic clock.
#ifndef CLIENT_LIB_INCLUDE_DJINN_PROFILE_H_
#define CLIENT_LIB_INCLUDE_DJINN_PROFILE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "djinn/api.h"

namespace djinn {

enum class Stage {
  // The program's own time and the capture of its calls, until it asks for the
  // value. This includes uploads, and waiting for shapes that only the worker
  // knows.
  kCapture,
  // Encoding messages from the captured calls.
  kEncode,
  // Waiting in this process until the messages are handed to the transport.
  kClientQueue,
  // The way to the worker: serialisation, network, and waking the receiver.
  kTransit,
  kDecode,
  // Admitting new graphs, and finding the plans of known ones.
  kAdmission,
  // Waiting in the worker's queue.
  kWorkerQueue,
  // Binding and checking storages; small uploads and new storages.
  kBind,
  kExecute,
  // Reading the value and encoding the reply.
  kReply,
  // The transfer of the result to the client. Over gRPC it includes decoding,
  // which cannot be measured separately there.
  kTransitBack,
  // Decoding, waking the waiting thread, and copying the value.
  kHandOver,
};
inline constexpr size_t kStageCount = 12;
// Returns the stage's name, such as "capture" or "client queue".
DJINN_API const char* NameOf(Stage stage);

struct RequestProfile {
  int device = 0;
  // The operating system's number of the thread.
  int64_t thread = 0;
  // Points on this process's monotonic clock.
  absl::Duration began;
  absl::Duration ended;
  std::array<absl::Duration, kStageCount> stages = {};

  absl::Duration operator[](Stage stage) const {
    return stages[static_cast<size_t>(stage)];
  }
};

// How a node was executed.
enum class ExecutionPath {
  kPlain,
  // With a prepacked copy of its weight.
  kPacked,
  // The node failed, or did not run because an input had failed.
  kFailed,
};
DJINN_API const char* NameOf(ExecutionPath way);

struct OperatorProfile {
  std::string name;  // "aten::mm"
  bool fast = false;
  ExecutionPath way = ExecutionPath::kPlain;
  uint64_t calls = 0;
  absl::Duration total;
};

struct NodeProfile {
  // The index in Profile::operators.
  uint32_t operator_index = 0;
  absl::Duration began;
  absl::Duration took;
};

// A run on a worker. The worker's times are converted to this process's clock
// with the help of the round trips of reads; Profile::clock_uncertainty bounds
// the error.
struct RunProfile {
  int device = 0;
  uint64_t sequence = 0;
  bool fast = false;
  // The times at which the worker began to look up the plan, to bind it, and to
  // execute it, and at which it finished.
  absl::Duration looked_up;
  absl::Duration bound;
  absl::Duration started;
  absl::Duration ended;
  std::vector<NodeProfile> nodes;
};

struct ProfileStatistics {
  // The sum over all requests.
  absl::Duration capture;
  // The time between capture and execution, without the network: encoding, both
  // queues, admission and binding.
  absl::Duration schedule;
  // The sum over all runs on workers, whether the program waited for them or
  // not.
  absl::Duration execution;
  // The share of runs whose plan the worker had; 0 if there were no runs.
  double cache_hit_rate = 0;
};

struct Profile {
  // Sorted by total time, largest first.
  std::vector<OperatorProfile> operators;
  std::vector<RequestProfile> requests;
  std::vector<RunProfile> runs;
  // The numbers of entries that were dropped because there was no room. A
  // request for which the worker's times are missing, such as a request that
  // began before the profile, counts as dropped.
  uint64_t dropped_requests = 0;
  uint64_t dropped_runs = 0;
  uint64_t dropped_nodes = 0;
  // The figures that could not be measured, and why.
  std::vector<std::string> remarks;
  // The uncertainty of the worst device.
  absl::Duration clock_uncertainty;
  ProfileStatistics statistics;
  // The worker's id for each device index; empty for an unused device.
  std::vector<std::string> workers;

  // Returns a human-readable table with the columns operator, mode, execution
  // path, calls, total, mean and share.
  DJINN_API std::string OperatorTable() const;
  // Returns a human-readable table with the columns latency component, mean,
  // median, share and sum, and with the wall time.
  DJINN_API std::string StageTable() const;
  // Returns JSON for chrome://tracing, with this process's threads and the
  // workers' runs on one time line.
  DJINN_API std::string ChromeTrace() const;
};

// Profiles all devices of this process while it lives.
class DJINN_API ProfileScope {
 public:
  ProfileScope();
  // Drops the profile if Finish() was not called.
  ~ProfileScope();
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

  // Returns FailedPrecondition (PROFILE_RUNNING) if another scope was open.
  const absl::Status& status() const { return status_; }

  // Waits for every device, ends the profile and returns it. May be called
  // once. Errors: the error of status(); FailedPrecondition (PROFILE_ENDED) for
  // a second call; the failure of a device.
  absl::StatusOr<Profile> Finish();

 private:
  absl::Status status_;
  bool open_ = false;
};

// Returns the statistics of the open profile so far. If none is open, returns
// those of the last profile, or zeros before the first profile.
DJINN_API ProfileStatistics GetProfileStatistics();

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_PROFILE_H_
