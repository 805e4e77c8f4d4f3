// Gathers what the devices of this process find out while a profile runs: see
// djinn/profile.h.
//
// Who makes calls says so by NoteWork(), which begins the thread's request and
// costs a load and a branch while no profile runs. Thread-safe.
#ifndef CLIENT_LIB_SESSION_PROFILE_PROFILE_RECORDER_H_
#define CLIENT_LIB_SESSION_PROFILE_PROFILE_RECORDER_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client_lib/session/model/debug_flags.h"
#include "client_lib/session/profile/clock_relation.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "djinn/profile.h"
#include "djinn/v1/execution.pb.h"

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
  // The process'. Never destroyed.
  static ProfileRecorder& Global();

  // FailedPrecondition (PROFILE_RUNNING) while another profile runs. `clock`
  // stays until the next Begin().
  absl::Status Begin(Clock* clock = Clock::Real());
  // Devices take no new part from here on.
  void Stop();
  // What came since Begin(), and ends it.
  Profile End();

  // A request of this thread began, if none has since its last one ended.
  void BeginRequest();
  // When it did, or `now`; the next call begins another.
  absl::Duration TakeBeginning(absl::Duration now);

  void AddRequest(const RequestProfile& request);
  // OK, or what about a report cannot be.
  static absl::Status Check(const v1::ProfileReport& report);
  // Of a device on that worker; was checked. Without a relation of the clocks,
  // the last run ended when the report arrived.
  void AddReport(int device, const std::string& worker_id,
                 const v1::ProfileReport& report, const ClockRelation& clocks,
                 absl::Duration arrived);

  // Without the hit rate, which the sessions know. Of the last profile when
  // none runs.
  ProfileStatistics statistics() const;

 private:
  using OperatorKey = std::tuple<std::string, bool, ExecutionPath>;

  uint32_t IndexOf(const OperatorKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Remark(std::string remark) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Limits limits_;
  std::atomic<Clock*> clock_{Clock::Real()};
  // Counts the profiles: what a thread noted during an earlier one is void.
  std::atomic<uint64_t> number_{0};
  mutable Mutex mu_;
  bool running_ ABSL_GUARDED_BY(mu_) = false;
  Profile profile_ ABSL_GUARDED_BY(mu_);
  ProfileStatistics last_ ABSL_GUARDED_BY(mu_);
  std::map<OperatorKey, uint32_t> operators_ ABSL_GUARDED_BY(mu_);
  size_t nodes_ ABSL_GUARDED_BY(mu_) = 0;
};

// The calling thread works on a request: see ProfileRecorder.
inline void NoteWork() {
  if (ABSL_PREDICT_FALSE(debug::Has(debug::kProfile))) {
    ProfileRecorder::Global().BeginRequest();
  }
}

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_PROFILE_PROFILE_RECORDER_H_
