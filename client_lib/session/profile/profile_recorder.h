// Collects what the devices of this process measure while a profile runs: see
// djinn/profile.h.
//
// A thread that issues calls uses NoteWork() (request_tracer.h) to begin its
// request. While no profile runs, this costs a load and a branch. Thread-safe.
#ifndef CLIENT_LIB_SESSION_PROFILE_PROFILE_RECORDER_H_
#define CLIENT_LIB_SESSION_PROFILE_PROFILE_RECORDER_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client_lib/session/profile/request_stages.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "djinn/profile.h"

namespace djinn::v1 {
class ProfileReport;
}  // namespace djinn::v1

namespace djinn {

class ProfileRecorder {
 public:
  struct Limits {
    size_t requests = 65536;
    size_t runs = 65536;
    size_t nodes = 1 << 20;
  };

  ProfileRecorder() = default;
  explicit ProfileRecorder(Limits limits) : limits_(limits) {}
  // Returns the recorder of the process. Never destroyed.
  static ProfileRecorder& Global();

  // Starts a profile. Returns FailedPrecondition (PROFILE_RUNNING) while
  // another one runs. `clock` must live until the next Begin().
  absl::Status Begin(Clock* clock = Clock::Real());
  // Stops devices from joining the profile.
  void Stop();
  // Ends the profile and returns what was added since Begin().
  Profile End();

  // Begins a request of this thread, unless one is open already.
  void BeginRequest();
  // Returns the time when the thread's request began, or `now` if none is open,
  // and ends it. The next BeginRequest() begins another request.
  absl::Duration TakeBeginning(absl::Duration now);

  void AddRequest(const RequestProfile& request);
  // Returns OK, or an error that describes an impossible value in the report.
  static absl::Status Check(const v1::ProfileReport& report);
  // Adds a checked report of the device on that worker. If the relation of the
  // clocks is unknown, the report's arrival counts as the end of the last run.
  void AddReport(int device, const std::string& worker_id,
                 const v1::ProfileReport& report, const ClockRelation& clocks,
                 absl::Duration arrived);

  // Returns the statistics of the open profile, or of the last one if none is
  // open. The hit rate is missing, because only the sessions know it.
  ProfileStatistics statistics() const;

 private:
  using OperatorKey = std::tuple<std::string, bool, ExecutionPath>;

  uint32_t IndexOf(const OperatorKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Remark(std::string remark) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Limits limits_;
  std::atomic<Clock*> clock_{Clock::Real()};
  // The number of the current profile. A thread's notes made under another
  // number are invalid.
  std::atomic<uint64_t> number_{0};
  mutable Mutex mu_;
  bool running_ ABSL_GUARDED_BY(mu_) = false;
  Profile profile_ ABSL_GUARDED_BY(mu_);
  ProfileStatistics last_ ABSL_GUARDED_BY(mu_);
  std::map<OperatorKey, uint32_t> operators_ ABSL_GUARDED_BY(mu_);
  size_t nodes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_PROFILE_PROFILE_RECORDER_H_
