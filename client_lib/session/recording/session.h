// A process' connection to a cluster: one session at the coordinator, virtual
// devices that it backs with workers.
//
// Life: Open() attaches; devices come into being on first use; Close() flushes,
// ends the session and makes every storage of it unusable. A session whose
// coordinator went away keeps running and attaches again in the background.
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
  // Bound on opening and on a lease request.
  absl::Duration connect_timeout = absl::Seconds(30);
  // Bound on every wait for a worker.
  absl::Duration operation_timeout = absl::Minutes(10);
  // How long a worker whose connection broke is tried to be reached again.
  absl::Duration resume_timeout = absl::Seconds(10);
  // Virtual devices of the session: indices 0 .. device_count-1.
  int device_count = 16;
  // Name of the program, for operators.
  std::string program;
  // How single virtual devices are placed, by index: names of policies. Others
  // are as the session is.
  std::map<int, std::string> device_placement_policies;
  // On how many workers virtual devices begin, by index; others on one.
  std::map<int, int> device_workers;
  // aten::copy_ among the process' operators (operator_table.h). Absent: a
  // device that spans workers shares no rows out between them.
  std::optional<uint32_t> copy_operator;
  // Present: copies between virtual devices are errors, too. Added to what is
  // said of operands on several devices.
  std::optional<std::string> strict_devices;
  // Outlive the session.
  Clock* clock = Clock::Real();
  RandomSource* random = RandomSource::Real();
  ThreadFactory* threads = ThreadFactory::Real();
};

// An answer on its way. Thread-safe.
class PendingCost {
 public:
  virtual ~PendingCost() = default;
  // A device's failure.
  virtual absl::StatusOr<Cost> Wait() = 0;
};

class Session {
 public:
  virtual ~Session() = default;

  // The device, made on first use. OutOfRange beyond device_count.
  virtual absl::StatusOr<std::shared_ptr<VirtualDevice>> Device(int index) = 0;

  virtual const SessionOptions& options() const = 0;
  virtual std::string session_id() const = 0;
  virtual std::string tenant() const = 0;
  virtual Statistics statistics() const = 0;

  // Asks the workers what the session has used in all, by what was called until
  // now. Waits only where a device has no worker yet, or is on its way to
  // another. Returns a device's failure.
  virtual absl::StatusOr<std::unique_ptr<PendingCost>> AskCost(
      uint32_t lane) = 0;

  // Root errors of the session so far, oldest first, at most 100.
  virtual std::vector<absl::Status> RootErrors() const = 0;

  // Ends what a profile began on the devices, so that the recorder has it
  // (profile_recorder.h). Returns a device's failure.
  virtual absl::Status FinishProfile() = 0;

  // Flushes every device and ends the session. Work still unfinished at the
  // deadline is cancelled: DeadlineExceeded (UNFINISHED_WORK) says how much of
  // what was lost on which device. The session is closed in every case, at most
  // two seconds after the deadline.
  virtual absl::Status Close(absl::Duration deadline) = 0;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_RECORDING_SESSION_H_
