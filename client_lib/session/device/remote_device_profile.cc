// Measures for profiles, and requests the worker's measurements.
#include <memory>

#include "client_lib/session/device/remote_device.h"
#include "client_lib/session/model/fork_guard.h"

namespace djinn {

absl::Duration RemoteDevice::Now() const {
  return context_->options.clock->Monotonic();
}

void RemoteDevice::ProfileSender(EncodedMessages* messages) {
  {
    MutexLock lock(&answers_.mu);
    if (answers_.profiler.Profiled() == nullptr) return;
    if (encoder_.profile() != nullptr) return;
    encoder_.set_profile(answers_.profiler.Profiled());
  }
  encoder_.EncodeProfile(v1::PROFILE_ACTION_START, messages);
}

absl::Status RemoteDevice::FinishProfile() {
  if (IsForkedChild()) return AfterForkError();
  const auto end = [this] {
    MutexLock lock(&answers_.mu);
    answers_.profiler.End();
  };
  {
    MutexLock lock(&answers_.mu);
    if (!answers_.profiler.active()) return absl::OkStatus();
  }
  absl::Status status;
  {
    MutexLock lock(&mu_);
    status = AwaitWelcome();
    if (status.ok() && !end_.usable()) status = end_.Reason();
  }
  if (!status.ok()) {
    end();
    return status;
  }
  const auto wait = std::make_shared<ProfileWait>();
  status =
      recorder_.QueueBehindAll({0, StoragePtr(), 0, ProfileWork{wait}},
                               [](absl::FunctionRef<void()> push) { push(); });
  SendNow();
  if (status.ok()) {
    MutexLock lock(&answers_.mu);
    status = answers_.Await(wait.get(), [&] { return wait->done; });
  }
  end();
  return status;
}

}  // namespace djinn
