// Profiles: what is measured here, and asked from the worker.
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "client_lib/session/device/remote_device.h"
#include "client_lib/session/model/fork_guard.h"
#include "client_lib/session/profile/profile_recorder.h"
#include "common/status_macros.h"

namespace djinn {
namespace {

int64_t ThreadNumber() {
  thread_local const int64_t number = syscall(SYS_gettid);
  return number;
}

}  // namespace

DeviceProfile* RemoteDevice::Profiled() {
  if (ABSL_PREDICT_TRUE(!debug::Has(debug::kProfile))) return profile_.get();
  if (profile_ == nullptr) profile_ = std::make_shared<DeviceProfile>();
  return profile_.get();
}

absl::Duration RemoteDevice::Now() const {
  return context_->options.clock->Monotonic();
}

void RemoteDevice::MarkAsked(ReadWait* wait, absl::Duration began,
                             absl::Duration asked) {
  // One that was foreseen before the profile began has no marks.
  if (wait->marks == nullptr || profile_ == nullptr) return;
  wait->marks->began = began;
  wait->marks->asked = asked;
  wait->marks->encoding_before = profile_->encoding.At(asked)[0];
}

void RemoteDevice::MarkHanded(uint64_t sequence) {
  const ReadWait* const read = answers_.reads().Find(sequence);
  if (read == nullptr || read->marks == nullptr) return;
  ReadMarks& marks = *read->marks;
  marks.handed = Now();
  marks.encoding_after = profile_->encoding.At(*marks.handed)[0];
}

absl::Status RemoteDevice::MarkAnswered(const v1::ControlResponse& response,
                                        absl::Duration arrived) {
  const ReadWait* const read =
      answers_.reads().Find(response.read().sequence());
  if (read == nullptr) return absl::OkStatus();  // said elsewhere
  DJINN_RETURN_IF_ERROR(CheckTiming(response.timing()));
  if (read->marks == nullptr) return absl::OkStatus();
  ReadMarks& marks = *read->marks;
  if (!marks.handed.has_value()) return absl::OkStatus();
  marks.timing = response.timing();
  marks.arrived = arrived;
  if (profile_ == nullptr) return absl::OkStatus();
  profile_->clocks.Add(
      *marks.handed,
      absl::Nanoseconds(static_cast<int64_t>(marks.timing->received())),
      absl::Nanoseconds(static_cast<int64_t>(marks.timing->sent())), arrived);
  return absl::OkStatus();
}

void RemoteDevice::FinishRequest(ReadWait* wait) {
  std::unique_ptr<ReadMarks> marks;
  ClockRelation clocks;
  {
    MutexLock lock(&mu_);
    marks = std::move(wait->marks);
    if (profile_ != nullptr) clocks = profile_->clocks;
  }
  if (marks == nullptr || !marks->complete()) return;
  RequestProfile request;
  request.device = index_;
  request.thread = ThreadNumber();
  request.began = marks->began;
  request.ended = Now();
  request.stages = StagesOf(*marks, clocks, request.ended);
  ProfileRecorder::Global().AddRequest(request);
}

void RemoteDevice::ProfileSender(EncodedMessages* messages) {
  {
    MutexLock lock(&mu_);
    if (Profiled() == nullptr) return;
    if (encoder_.profile() != nullptr) return;
    encoder_.set_profile(profile_);
  }
  encoder_.EncodeProfile(v1::PROFILE_ACTION_START, messages);
}

absl::Status RemoteDevice::ApplyProfile(const v1::ProfileReport& report) {
  DJINN_RETURN_IF_ERROR(ProfileRecorder::Check(report));
  if (profile_ == nullptr) return absl::OkStatus();  // no longer profiled
  ProfileRecorder::Global().AddReport(index_, lease_.worker_id(), report,
                                      profile_->clocks, Now());
  answers_.TakeReport(report);
  return absl::OkStatus();
}

absl::Status RemoteDevice::FinishProfile() {
  if (IsForkedChild()) return AfterForkError();
  const auto wait = std::make_shared<ProfileWait>();
  {
    MutexLock lock(&mu_);
    if (profile_ == nullptr) return absl::OkStatus();
    absl::Status status = AwaitWelcome();
    if (status.ok() && !usable()) status = Unusable();
    if (!status.ok()) {
      profile_.reset();
      return status;
    }
  }
  absl::Status status =
      recorder_.QueueBehindAll({0, StoragePtr(), 0, ProfileWork{wait}},
                               [](absl::FunctionRef<void()> push) { push(); });
  SendNow();
  MutexLock lock(&mu_);
  if (status.ok()) status = Await(wait.get(), [&] { return wait->done; });
  profile_.reset();
  return status;
}

}  // namespace djinn
