// What the worker measures of the session's use.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/session/remote_device.h"
#include "common/error.h"
#include "common/status_macros.h"

namespace djinn {

absl::StatusOr<std::shared_ptr<MeterWait>> RemoteDevice::AskMeter(
    uint32_t lane) {
  auto wait = std::make_shared<MeterWait>();
  {
    MutexLock lock(&mu_);
    if (!usable_) return Unusable();
    RefuseRecording(lane, "METERS", "it asks what it costs");
    if (!welcomed_ && !lease_due_ && !recorder_.HasOpenSegments()) {
      wait->done = true;  // there was nothing to cost anything
      return wait;
    }
    DJINN_RETURN_IF_ERROR(AwaitWelcome());
    DJINN_RETURN_IF_ERROR(Enter(Caller::kOrdered));
    // It is this worker that is asked.
    DJINN_RETURN_IF_ERROR(AwaitMigration());
    SealedSegments sealed;
    recorder_.SealAll(&sealed);
    QueueSegments(sealed);
    Queue({lane, StoragePtr(), 0, MeterWork{wait}}, /*needs_lease=*/true);
  }
  wakeup_.Set();
  return wait;
}

absl::StatusOr<v1::MeteredUse> RemoteDevice::AwaitMeter(MeterWait* wait) {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Await(wait, [&] { return wait->done; }));
  return wait->use;
}

void RemoteDevice::Encode(const Work&, MeterWork& meter,
                          v1::ControlRequest* request) {
  request->mutable_ordered()->mutable_meter();
  MutexLock lock(&mu_);
  meters_[log_.next_sequence()] = std::move(meter.wait);
}

bool RemoteDevice::ApplyMetered(const v1::Metered& metered) {
  const auto found = meters_.extract(metered.sequence());
  if (found.empty()) return false;
  MeterWait& wait = *found.mapped();
  wait.use = metered.use();
  AddUse(used_elsewhere_, &wait.use);
  wait.done = true;
  wait.changed.SignalAll();
  return true;
}

void AddUse(const v1::MeteredUse& use, v1::MeteredUse* sum) {
  sum->set_device_nanoseconds(sum->device_nanoseconds() +
                              use.device_nanoseconds());
  sum->set_received_bytes(sum->received_bytes() + use.received_bytes());
  sum->set_sent_bytes(sum->sent_bytes() + use.sent_bytes());
  sum->set_runs(sum->runs() + use.runs());
}

}  // namespace djinn
