#include "gpu_worker/session/state/message_hold.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "gpu_worker/session/base/violation.h"

namespace djinn::worker {

void MessageHold::LackRoom(uint64_t sequence, absl::Duration now) {
  if (no_room_for_ == sequence) return;
  no_room_for_ = sequence;
  no_room_since_ = now;
}

std::optional<ParkedUpload> MessageHold::TakeUpload() {
  return std::exchange(upload_, std::nullopt);
}

std::optional<ParkedPull> MessageHold::TakePull() {
  return std::exchange(pull_, std::nullopt);
}

std::optional<v1::DefineGraph> MessageHold::TakeSupply() {
  std::optional<Need> need = std::exchange(need_, std::nullopt);
  if (!need.has_value()) return std::nullopt;
  return std::move(need->supply);
}

absl::StatusOr<bool> MessageHold::Supply(v1::DefineGraph supply) {
  const uint64_t id = supply.graph_id();
  const bool asked = needs() && need_->graph_id == id;
  // Ignores the answer to a question that was repeated when the stream was
  // resumed.
  if (!asked && id != 0 && id == supplied_) return false;
  if (!asked) {
    return Violation(
        absl::StrCat("supplies graph ", id, ", which nobody needs"));
  }
  if (supply.ByteSizeLong() > limits_.max_outstanding_bytes()) {
    return Violation(absl::StrCat(
        "supplies graph ", id, " with ", supply.ByteSizeLong(),
        " bytes, at most ", limits_.max_outstanding_bytes(), " are allowed"));
  }
  supplied_ = id;
  need_->supply = std::move(supply);
  return true;
}

uint64_t MessageHold::RepeatNeed(absl::Duration now) {
  if (!needs()) return 0;
  need_->since = now;
  return need_->graph_id;
}

absl::Status MessageHold::CheckNeed(absl::Duration now,
                                    absl::Duration timeout) const {
  if (!needs() || now - need_->since < timeout) return absl::OkStatus();
  return MakeError(absl::StatusCode::kDeadlineExceeded, "NEED_TIMEOUT",
                   absl::StrCat("graph ", need_->graph_id,
                                " was asked for again and did not come for ",
                                absl::FormatDuration(timeout)));
}

bool MessageHold::released() const {
  if (upload_.has_value()) return uploads_.settled();
  if (pull_.has_value()) return pulls_.settled();
  return need_.has_value() && need_->supply.has_value();
}

std::optional<MessageHold::Awaited> MessageHold::awaited() const {
  if (upload_.has_value()) {
    if (const auto awaited = uploads_.awaited(); awaited.has_value()) {
      return Awaited{awaited->from_disk ? v1::MessageWait::CONTENT
                                        : v1::MessageWait::BYTES,
                     awaited->since};
    }
  }
  if (pull_.has_value()) {
    if (auto awaited = pulls_.awaited(); awaited.has_value()) {
      return Awaited{v1::MessageWait::VALUE, awaited->since,
                     std::move(awaited->worker_id)};
    }
  }
  if (needs()) return Awaited{v1::MessageWait::GRAPH, need_->since};
  return std::nullopt;
}

std::optional<absl::Duration> MessageHold::lacks_room(uint64_t sequence) const {
  if (sequence != no_room_for_) return std::nullopt;
  return no_room_since_;
}

void MessageHold::Clear() {
  upload_.reset();
  pull_.reset();
  need_.reset();
}

}  // namespace djinn::worker
