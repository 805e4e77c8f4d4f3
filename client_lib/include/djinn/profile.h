// Where a program's time goes, here and on the workers:
//
//   djinn::ProfileScope scope;
//   for (...) model(input).cpu();
//   const djinn::Profile profile = *scope.Finish();
//   puts(profile.StageTable().c_str());
//
// A *request* begins with a thread's first call on a device after its last
// request, and ends when a value that the thread reads is there. Its time is
// cut into twelve stages, disjoint and without gaps. They follow what the
// program waited for: where the worker executes while the program still
// captures, that is capture; Profile::operators counts all that was executed.
//
// While no scope is open, none of this is measured.
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
  // The program's own time, with what captures its calls, until it asks for the
  // value. Uploads, and shapes that are asked from the worker, are part of it.
  kCapture,
  // Making messages of what was captured.
  kEncode,
  // Waiting here until they are handed to the transport.
  kClientQueue,
  // To the worker: serialisation, the network, and waking who receives.
  kTransit,
  kDecode,
  // Admitting new structures, and finding the plans of known ones.
  kAdmission,
  // Waiting for its turn on the worker.
  kWorkerQueue,
  // Binding storages and checking; small uploads and births.
  kBind,
  kExecute,
  // Reading the value out and making the reply of it.
  kReply,
  // Back again. Over gRPC with decoding, which cannot be seen apart there.
  kTransitBack,
  // Decoding, waking the thread that waits, and copying the value.
  kHandOver,
};
inline constexpr size_t kStageCount = 12;
// "capture", "client queue".
DJINN_API const char* NameOf(Stage stage);

struct RequestProfile {
  int device = 0;
  // The system's number of the thread.
  int64_t thread = 0;
  // By this process' monotonic clock.
  absl::Duration began;
  absl::Duration ended;
  std::array<absl::Duration, kStageCount> stages = {};

  absl::Duration operator[](Stage stage) const {
    return stages[static_cast<size_t>(stage)];
  }
};

// How a node was carried out.
enum class NodeWay {
  kPlain,
  // By a kernel of the worker's own, with a packed copy of its weight or, of
  // few rows, without.
  kPacked,
  // It failed, or would have read what had failed.
  kFailed,
};
DJINN_API const char* NameOf(NodeWay way);

struct OperatorProfile {
  std::string name;  // "aten::mm"
  bool fast = false;
  NodeWay way = NodeWay::kPlain;
  uint64_t calls = 0;
  absl::Duration total;
};

struct NodeProfile {
  // Into Profile::operators.
  uint32_t operator_index = 0;
  absl::Duration began;
  absl::Duration took;
};

// A run on a worker. Its clock is related to ours by the round trips of reads;
// Profile::clock_uncertainty says how well.
struct RunProfile {
  int device = 0;
  uint64_t sequence = 0;
  bool fast = false;
  // When looking its plan up began, binding it, executing it, and its end.
  absl::Duration looked_up;
  absl::Duration bound;
  absl::Duration started;
  absl::Duration ended;
  std::vector<NodeProfile> nodes;
};

struct ProfileStatistics {
  // Of all requests.
  absl::Duration capture;
  // From what was captured to what may be executed, network apart: encoding,
  // both queues, admission, binding.
  absl::Duration schedule;
  // Of all runs on workers, waited for or not.
  absl::Duration execution;
  // Runs whose plan the worker had, of all runs. 0 when there were none.
  double cache_hit_rate = 0;
};

struct Profile {
  // Largest total first.
  std::vector<OperatorProfile> operators;
  std::vector<RequestProfile> requests;
  std::vector<RunProfile> runs;
  // What there was no room for; a request without its times of the worker, as
  // one that was asked before the profile began, counts as none.
  uint64_t dropped_requests = 0;
  uint64_t dropped_runs = 0;
  uint64_t dropped_nodes = 0;
  // What could not be measured, and why.
  std::vector<std::string> remarks;
  // Of the worst device.
  absl::Duration clock_uncertainty;
  ProfileStatistics statistics;
  // By device: its worker's id, empty where it was not used.
  std::vector<std::string> workers;

  // For people. Operator, mode, way, calls, total, mean, share.
  DJINN_API std::string OperatorTable() const;
  // Stage, mean, median, share; and the sum beside the wall time.
  DJINN_API std::string StageTable() const;
  // JSON for chrome://tracing: this process' threads and the workers' runs on
  // one time line.
  DJINN_API std::string ChromeTrace() const;
};

// Profiles all devices of this process while it lives. One at a time.
class DJINN_API ProfileScope {
 public:
  ProfileScope();
  // What was not asked for by Finish() is dropped.
  ~ProfileScope();
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

  // FailedPrecondition (PROFILE_RUNNING) when another scope was open.
  const absl::Status& status() const { return status_; }

  // Waits for every device, ends the profile and returns it; once.
  // status(); FailedPrecondition (PROFILE_ENDED) the second time; a device's
  // failure.
  absl::StatusOr<Profile> Finish();

 private:
  absl::Status status_;
  bool open_ = false;
};

// Of the profile that is open, as far as it has gathered, or else of the last
// one; zeros before the first.
DJINN_API ProfileStatistics GetProfileStatistics();

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_PROFILE_H_
