// What a session's next message waits for, as operators are told.
#include "common/net/proto_duration.h"
#include "gpu_worker/session/session.h"

namespace djinn::worker {

void Session::NoteNoRoom(uint64_t sequence) {
  MutexLock lock(&mu_);
  if (no_room_for_ == sequence) return;
  no_room_for_ = sequence;
  no_room_since_ = environment_.clock->Monotonic();
}

std::optional<v1::MessageWait> Session::wait() const {
  const bool full = outbox_.Full();
  const absl::Duration now = environment_.clock->Monotonic();
  const auto say = [now](v1::MessageWait::For what, absl::Duration since) {
    v1::MessageWait wait;
    wait.set_what(what);
    *wait.mutable_waited() = ToProtoDuration(now - since);
    return wait;
  };
  MutexLock lock(&mu_);
  if (OverLocked() || running_) return std::nullopt;
  if (upload_.has_value()) {
    const std::optional<Uploads::Awaited> awaited = uploads_.awaited();
    if (awaited.has_value()) {
      return say(awaited->from_disk ? v1::MessageWait::CONTENT
                                    : v1::MessageWait::BYTES,
                 awaited->since);
    }
  }
  if (fetch_.has_value()) {
    const std::optional<Pulls::Awaited> awaited = pulls_.awaited();
    if (awaited.has_value()) {
      v1::MessageWait wait = say(v1::MessageWait::VALUE, awaited->since);
      wait.set_worker_id(awaited->worker_id);
      return wait;
    }
  }
  if (need_.has_value() && !need_->supply.has_value()) {
    return say(v1::MessageWait::STRUCTURE, need_->since);
  }
  if (full || !HasWorkLocked()) return std::nullopt;
  if (!inbox_.empty() && inbox_.next_sequence() == no_room_for_) {
    return say(v1::MessageWait::ROOM, no_room_since_);
  }
  return say(v1::MessageWait::TURN, now);
}

}  // namespace djinn::worker
