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
  if (starts) StartProfile();
  v1::ControlResponse response;
  *response.mutable_profile() = profile_->TakeReport(sequence);
  Reply(std::move(response));
  if (stops) EndProfile();
  return absl::OkStatus();
}

void Session::ExpectProfile() {
  const Device& device = *environment_.memory->device();
  receiving_profile_ = std::make_shared<SessionProfile>(
      environment_.clock,
      device.times_nodes()
          ? ""
          : absl::StrCat("device ", device.name(),
                         " does not say when a node was carried out"));
  profiled_.store(true, std::memory_order_relaxed);
}

void Session::StartProfile() {
  MutexLock lock(&mu_);
  profile_ = receiving_profile_;
}

void Session::EndProfile() {
  MutexLock lock(&mu_);
  // Unless the next one is on its way.
  if (receiving_profile_ == profile_) {
    receiving_profile_ = nullptr;
    profiled_.store(false, std::memory_order_relaxed);
  }
  profile_ = nullptr;
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
