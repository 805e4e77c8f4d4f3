// Asks the worker for what the session has used.
#include <memory>
#include <utility>

#include "client_lib/session/device/remote_device.h"
#include "common/status_macros.h"

namespace djinn {

absl::StatusOr<std::shared_ptr<MeterWait>> RemoteDevice::AskMeter(
    uint32_t lane) {
  auto wait = std::make_shared<MeterWait>();
  const bool records = recorder_.HasOpenSegments();
  {
    MutexLock lock(&mu_);
    if (!usable()) return Unusable();
    if (!welcomed_ && !queue_.needs_lease() && !records) {
      wait->done = true;  // there was nothing to cost anything
      return wait;
    }
  }
  DJINN_RETURN_IF_ERROR(QueueHere(
      [&](CallRecorder::Admit admit) {
        return recorder_.QueueBehindAll(
            {lane, StoragePtr(), 0, MeterWork{wait}}, admit);
      },
      [] {}));
  wakeup_.Set();
  return wait;
}

absl::StatusOr<v1::MeteredUse> RemoteDevice::AwaitMeter(MeterWait* wait) {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Await(wait, [&] { return wait->done; }));
  return wait->use;
}

}  // namespace djinn
