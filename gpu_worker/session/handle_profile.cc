// Profile, and what it measures on the way of other messages.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu_worker/session/session.h"
#include "gpu_worker/session/violation.h"

namespace djinn::worker {

absl::Status Session::HandleProfile(uint64_t sequence,
                                    const v1::Profile& profile) {
  const bool starts = profile.action() == v1::PROFILE_ACTION_START;
  const bool stops = profile.action() == v1::PROFILE_ACTION_STOP;
  if (!starts && !stops && profile.action() != v1::PROFILE_ACTION_REPORT) {
    return Violation(absl::StrCat("a profile with action ", profile.action()));
  }
  if (starts == (profile_ != nullptr)) {
    return Violation(starts ? "starts a profile that is running"
                            : "asks about a profile that is not running");
  }
  if (starts) {
    const Device& device = *environment_.memory->device();
    SetProfile(std::make_shared<SessionProfile>(
        environment_.clock,
        device.times_nodes()
            ? ""
            : absl::StrCat("device ", device.name(),
                           " does not say when a node was carried out")));
  }
  v1::ControlResponse response;
  *response.mutable_profile() = profile_->TakeReport(sequence);
  Reply(std::move(response));
  if (stops) SetProfile(nullptr);
  return absl::OkStatus();
}

void Session::SetProfile(std::shared_ptr<SessionProfile> profile) {
  MutexLock lock(&mu_);
  profile_ = profile;
  receiving_profile_ = std::move(profile);
  profiled_.store(profile_ != nullptr, std::memory_order_relaxed);
}

std::optional<SessionProfile::Mark> Session::MarkArrival() {
  std::shared_ptr<const SessionProfile> profile;
  {
    MutexLock lock(&mu_);
    profile = receiving_profile_;
  }
  if (profile == nullptr) return std::nullopt;
  return profile->Note();
}

void Session::AddTiming(v1::ControlResponse* response) const {
  // One that came before the profile began has no mark.
  if (profile_ == nullptr || !message_mark_.has_value()) return;
  *response->mutable_timing() = profile_->TimingOf(*message_mark_);
}

}  // namespace djinn::worker
