// Measures for profiles, and requests the worker's measurements.
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "client_lib/session/device/remote_device.h"
#include "client_lib/session/model/fork_guard.h"
#include "client_lib/session/profile/profile_recorder.h"
#include "common/base/status_macros.h"

namespace djinn {
namespace {

int64_t ThreadNumber() {
  thread_local const int64_t number = syscall(SYS_gettid);
  return number;
}

}  // namespace

absl::Duration RemoteDevice::Now() const {
  return context_->options.clock->Monotonic();
}

void RemoteDevice::FinishRequest(ReadWait* wait) {
  std::unique_ptr<ReadMarks> marks;
  ClockRelation clocks;
  {
    MutexLock lock(&mu_);
    marks = profiler_.TakeMarks(wait, &clocks);
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
    if (profiler_.Profiled() == nullptr) return;
    if (encoder_.profile() != nullptr) return;
    encoder_.set_profile(profiler_.Profiled());
  }
  encoder_.EncodeProfile(v1::PROFILE_ACTION_START, messages);
}

absl::Status RemoteDevice::FinishProfile() {
  if (IsForkedChild()) return AfterForkError();
  const auto wait = std::make_shared<ProfileWait>();
  {
    MutexLock lock(&mu_);
    if (!profiler_.active()) return absl::OkStatus();
    absl::Status status = AwaitWelcome();
    if (status.ok() && !end_.usable()) status = end_.Reason();
    if (!status.ok()) {
      profiler_.End();
      return status;
    }
  }
  absl::Status status =
      recorder_.QueueBehindAll({0, StoragePtr(), 0, ProfileWork{wait}},
                               [](absl::FunctionRef<void()> push) { push(); });
  SendNow();
  MutexLock lock(&mu_);
  if (status.ok()) status = Await(wait.get(), [&] { return wait->done; });
  profiler_.End();
  return status;
}

}  // namespace djinn
