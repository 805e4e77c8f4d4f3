// Defines a process's connection to a cluster: one session at the coordinator,
// and the virtual devices that workers back.
//
// Life: Open() attaches. Devices are created at their first use. Close()
// flushes, ends the session and makes all of its storages unusable. A session
// that loses its coordinator continues, and attaches to the coordinator in the
// background.
//
// Thread-safe.
#ifndef CLIENT_LIB_SESSION_RECORDING_SESSION_H_
#define CLIENT_LIB_SESSION_RECORDING_SESSION_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client_lib/session/model/thread_factory.h"
#include "client_lib/session/recording/virtual_device.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "djinn/cost.h"
#include "djinn/statistics.h"

namespace djinn {

struct SessionOptions {
  // Limits the opening of the session and each lease request.
  absl::Duration connect_timeout = absl::Seconds(30);
  // Limits each wait for a worker.
  absl::Duration operation_timeout = absl::Minutes(10);
  // Time that the session tries to reconnect to a worker.
  absl::Duration resume_timeout = absl::Seconds(10);
  // Whether a virtual device that loses its worker goes on at another one,
  // which computes the same values again.
  bool recovers = false;
  // Limit on the bytes that a device keeps for that: messages, and the bytes of
  // uploads.
  uint64_t replay_memory = uint64_t{256} << 20;
  // Limit on the bytes that the session keeps for that in a temporary file, if
  // they have no room in memory: the weights of a large model, and values that
  // devices read back.
  uint64_t replay_disk = uint64_t{64} << 30;
  // Whether a device that recovers also reads values back from time to time, so
  // that less must be computed again, and not only when it has kept much.
  bool checkpoints = false;
  // Limit on the bytes of values that a device reads back and keeps.
  uint64_t checkpoint_memory = uint64_t{4} << 30;
  // Least time between checkpoints.
  absl::Duration replay_time = absl::Seconds(10);
  // Limit on the share of time that checkpoints take.
  double checkpoint_overhead = 0.02;
  // Number of virtual devices of the session: indices 0 .. device_count-1.
  int device_count = 16;
  // Name of the program, for operators.
  std::string program;
  // The placement policies of individual virtual devices, by index. Other
  // devices use the session's policy.
  std::map<int, std::string> device_placement_policies;
  // Number of workers that a virtual device starts with, by index; 1 for other
  // devices.
  std::map<int, int> device_workers;
  // Number of aten::copy_ among the process's operators (operator_table.h). If
  // it is absent, a multi-worker device does not divide rows among its workers.
  std::optional<uint32_t> copy_operator;
  // If present, copies between virtual devices are errors as well. The text is
  // appended to the error about operands on several devices.
  std::optional<std::string> strict_devices;
  // These three outlive the session.
  Clock* clock = Clock::Real();
  RandomSource* random = RandomSource::Real();
  ThreadFactory* threads = ThreadFactory::Real();
};

// A pending answer about costs. Thread-safe.
class PendingCost {
 public:
  virtual ~PendingCost() = default;
  // Waits for the answer. Returns a device's failure.
  virtual absl::StatusOr<Cost> Wait() = 0;
};

class Session {
 public:
  virtual ~Session() = default;

  // Returns the device, and creates it at its first use. Once a call has
  // returned the failure of the device, the index gets another device, which
  // has nothing of the failed one: calls that name storages or captured graphs
  // of that one go on returning its failure. Returns OutOfRange for an index
  // from device_count onwards.
  virtual absl::StatusOr<std::shared_ptr<VirtualDevice>> Device(int index) = 0;

  virtual const SessionOptions& options() const = 0;
  virtual std::string session_id() const = 0;
  virtual std::string tenant() const = 0;
  virtual Statistics statistics() const = 0;

  // Asks the workers for the total use of the session, including all calls made
  // so far. Blocks only while a device has no worker yet or migrates. Returns a
  // device's failure.
  virtual absl::StatusOr<std::unique_ptr<PendingCost>> AskCost(
      uint32_t lane) = 0;

  // Returns the session's root errors so far, oldest first, at most 100.
  virtual std::vector<absl::Status> RootErrors() const = 0;

  // Ends the profile on the devices, so that the recorder has the results
  // (profile_recorder.h). Returns a device's failure.
  virtual absl::Status FinishProfile() = 0;

  // Makes a checkpoint of every device and waits for it. Returns
  // FailedPrecondition (CHECKPOINTS_OFF) if the session does not recover, and
  // the errors of replica::Checkpoint().
  virtual absl::Status Checkpoint(absl::Duration timeout) = 0;

  // Flushes every device and ends the session. Runs that are unfinished at the
  // deadline are cancelled, and the error DeadlineExceeded (UNFINISHED_WORK)
  // says what each device lost. In every case the session is closed at most two
  // seconds after the deadline.
  virtual absl::Status Close(absl::Duration deadline) = 0;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_RECORDING_SESSION_H_
