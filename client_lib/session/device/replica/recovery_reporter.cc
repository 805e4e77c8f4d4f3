#include "client_lib/session/device/replica/recovery_reporter.h"

#include <string>
#include <utility>
#include <vector>

#include "client_lib/session/model/links.h"
#include "common/base/error.h"
#include "common/base/plain_text.h"
#include "common/base/proto_duration.h"

namespace djinn {
namespace {

// The coordinator takes a few thousand bytes.
constexpr size_t kMaxText = 1000;

}  // namespace

v1::ErrorDetail ShortDetail(const absl::Status& status) {
  v1::ErrorDetail detail;
  detail.set_code(static_cast<int32_t>(status.code()));
  detail.set_reason(ErrorReason(status).substr(0, kMaxText));
  detail.set_message(std::string(Cut(status.message(), kMaxText)));
  return detail;
}

void RecoveryReporter::Begin(int device, int member, const std::string& worker,
                             const absl::Status& cause, absl::Duration now) {
  sent_ = false;
  if (open_) return;
  open_ = true;
  began_ = now;
  lease_ = connect_ = send_ = absl::ZeroDuration();
  report_.Clear();
  report_.set_virtual_device(static_cast<uint32_t>(device));
  report_.set_member(static_cast<uint32_t>(member));
  report_.set_kind(ErrorReason(cause) == kFallbackEnded
                       ? v1::RecoveryReport::FALLBACK_ENDED
                       : v1::RecoveryReport::WORKER_LOST);
  report_.set_from_worker_id(worker);
  *report_.mutable_cause() = ShortDetail(cause);
}

void RecoveryReporter::Asked(absl::Duration took) {
  report_.set_attempts(report_.attempts() + 1);
  lease_ += took;
}

void RecoveryReporter::Connected(absl::Duration took) { connect_ += took; }

void RecoveryReporter::Sent(const std::string& worker, uint64_t replayed,
                            uint64_t restored, absl::Duration began,
                            absl::Duration now) {
  if (!open_) return;
  sent_ = true;
  sent_at_ = now;
  send_ += now - began;
  report_.set_to_worker_id(worker);
  report_.set_replayed_nodes(report_.replayed_nodes() + replayed);
  report_.set_restored_values(report_.restored_values() + restored);
}

void RecoveryReporter::Executed(absl::Duration now) {
  if (!open_ || !sent_) return;
  *report_.mutable_replay_time() = ToProtoDuration(now - sent_at_);
  *report_.mutable_lease_time() = ToProtoDuration(lease_);
  *report_.mutable_connect_time() = ToProtoDuration(connect_);
  *report_.mutable_send_time() = ToProtoDuration(send_);
  *report_.mutable_total_time() = ToProtoDuration(now - began_);
  open_ = false;
  complete_.push_back(std::exchange(report_, {}));
}

void RecoveryReporter::Failed(const absl::Status& failure, absl::Duration now) {
  if (!open_) return;
  *report_.mutable_failure() = ShortDetail(failure);
  *report_.mutable_total_time() = ToProtoDuration(now - began_);
  open_ = false;
  complete_.push_back(std::exchange(report_, {}));
}

std::vector<v1::RecoveryReport> RecoveryReporter::Take() {
  return std::exchange(complete_, {});
}

}  // namespace djinn
