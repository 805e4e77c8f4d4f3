#include "client_lib/session/device/outgoing/request_profiler.h"

#include <utility>

#include "absl/base/optimization.h"
#include "client_lib/session/model/debug_flags.h"
#include "client_lib/session/profile/profile_recorder.h"
#include "common/base/status_macros.h"

namespace djinn {

const std::shared_ptr<DeviceProfile>& RequestProfiler::Profiled() {
  if (ABSL_PREDICT_FALSE(debug::Has(debug::kProfile)) && profile_ == nullptr) {
    profile_ = std::make_shared<DeviceProfile>();
  }
  return profile_;
}

void RequestProfiler::MarkAsked(ReadWait* wait, absl::Duration began,
                                absl::Duration asked) {
  // A read that was prefetched before the profile began has no marks.
  if (wait->marks == nullptr || Profiled() == nullptr) return;
  wait->marks->began = began;
  wait->marks->asked = asked;
  wait->marks->encoding_before = profile_->encoding.At(asked)[0];
}

void RequestProfiler::MarkHanded(ReadWait* wait, absl::Duration now) {
  if (wait == nullptr || wait->marks == nullptr) return;
  wait->marks->handed = now;
  wait->marks->encoding_after = profile_->encoding.At(now)[0];
}

absl::Status RequestProfiler::MarkAnswered(ReadWait* wait,
                                           const v1::ReplyTiming& timing,
                                           absl::Duration arrived) {
  // TakeRead() reports the breach
  if (wait == nullptr) return absl::OkStatus();
  DJINN_ASSIGN_OR_RETURN(const WorkerTimes times, TimesOf(timing));
  if (wait->marks == nullptr) return absl::OkStatus();
  ReadMarks& marks = *wait->marks;
  if (!marks.handed.has_value()) return absl::OkStatus();
  marks.timing = times;
  marks.arrived = arrived;
  if (profile_ == nullptr) return absl::OkStatus();
  profile_->clocks.Add(*marks.handed, times.received, times.sent, arrived);
  return absl::OkStatus();
}

std::unique_ptr<ReadMarks> RequestProfiler::TakeMarks(ReadWait* wait,
                                                      ClockRelation* clocks) {
  if (profile_ != nullptr) *clocks = profile_->clocks;
  return std::move(wait->marks);
}

absl::Status RequestProfiler::TakeReport(int device,
                                         const std::string& worker_id,
                                         const v1::ProfileReport& report,
                                         absl::Duration now) {
  DJINN_RETURN_IF_ERROR(ProfileRecorder::Check(report));
  if (profile_ == nullptr) return absl::OkStatus();  // no longer profiled
  ProfileRecorder::Global().AddReport(device, worker_id, report,
                                      profile_->clocks, now);
  return absl::OkStatus();
}

}  // namespace djinn
