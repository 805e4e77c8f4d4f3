// Handles Profile and Meter: measurements that the program requests.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu_worker/session/base/violation.h"
#include "gpu_worker/session/handlers/handlers.h"
#include "gpu_worker/session/handlers/run_steps.h"
#include "gpu_worker/store/device_memory.h"

namespace djinn::worker {

absl::Status HandleProfile(SessionState& s, uint64_t sequence,
                           const v1::Profile& profile) {
  const bool starts = profile.action() == v1::PROFILE_ACTION_START;
  const bool stops = profile.action() == v1::PROFILE_ACTION_STOP;
  if (!starts && !stops && profile.action() != v1::PROFILE_ACTION_REPORT) {
    return Violation(absl::StrCat("a profile with action ", profile.action()));
  }
  if (starts == (s.profiling.profile != nullptr)) {
    return Violation(starts ? "starts a profile that is running"
                            : "asks about a profile that is not running");
  }
  if (starts) s.profiling.profile = s.profiling.arrivals.Start();
  v1::ControlResponse response;
  *response.mutable_profile() = s.profiling.profile->TakeReport(sequence);
  Reply(s, std::move(response));
  if (stops) {
    s.profiling.arrivals.End(std::exchange(s.profiling.profile, nullptr));
  }
  return absl::OkStatus();
}

void ExpectProfile(SessionState& s) {
  s.profiling.arrivals.Expect(std::make_shared<SessionProfile>(
      s.who.environment.clock, NodesUntimed(s)));
}

absl::Status HandleMeter(SessionState& s, uint64_t sequence) {
  v1::ControlResponse response;
  v1::Metered* const metered = response.mutable_metered();
  metered->set_sequence(sequence);
  *metered->mutable_use() = UseSoFar(s);
  Reply(s, std::move(response));
  return absl::OkStatus();
}

}  // namespace djinn::worker
