#include "common/transport/receiver_role.h"

#include "common/base/clock.h"

namespace djinn {

ReceiverRole::Turn ReceiverRole::Take(absl::FunctionRef<bool()> done,
                                      absl::Duration patience) {
  uint64_t nudges;
  {
    MutexLock lock(&mu_);
    if (ended_ || waiting_) return Turn::kRefused;
    if (holder_ == Holder::kNobody && !recalled_) {
      holder_ = Holder::kAttendant;
      ++attendances_;
      return Turn::kTaken;
    }
    waiting_ = wanted_ = true;
    nudges = nudges_;
  }
  const absl::Duration until = Clock::Real()->Monotonic() + patience;
  bool over = done();
  MutexLock lock(&mu_);
  while (!over && nudges_ == nudges && !ended_ &&
         (holder_ != Holder::kNobody || recalled_)) {
    over = offered_.WaitWithTimeout(&mu_, until - Clock::Real()->Monotonic());
  }
  waiting_ = false;
  if (ended_) return Turn::kRefused;
  if (over || holder_ != Holder::kNobody || recalled_) return Turn::kOver;
  holder_ = Holder::kAttendant;
  ++attendances_;
  return Turn::kTaken;
}

void ReceiverRole::Leave() {
  MutexLock lock(&mu_);
  holder_ = Holder::kNobody;
  if (resting_ || recalled_) turn_.Signal();
  NudgeLocked();
}

void ReceiverRole::Lend() {
  MutexLock lock(&mu_);
  // The received message may be what a waiting attendant waits for.
  NudgeLocked();
  if ((wanted_ || waiting_) && !recalled_ && !ended_) {
    wanted_ = false;
    holder_ = Holder::kNobody;
    AwaitTurn();
    holder_ = Holder::kThread;
  }
  recalled_ = false;
}

void ReceiverRole::AwaitTurn() {
  for (uint64_t seen = attendances_;;) {
    if (holder_ == Holder::kAttendant && attendances_ == seen) {
      resting_ = true;
      turn_.Wait(&mu_);
      resting_ = false;
      continue;
    }
    if (holder_ == Holder::kNobody && (recalled_ || ended_)) return;
    seen = attendances_;
    const bool late = turn_.WaitWithTimeout(&mu_, kLent);
    if (late && holder_ == Holder::kNobody && attendances_ == seen) return;
  }
}

void ReceiverRole::Keep() {
  MutexLock lock(&mu_);
  recalled_ = false;
}

void ReceiverRole::NudgeLocked() {
  ++nudges_;
  if (waiting_) offered_.Signal();
}

ReceiverRole::Holder ReceiverRole::Nudge() {
  MutexLock lock(&mu_);
  NudgeLocked();
  return holder_;
}

ReceiverRole::Holder ReceiverRole::Recall() {
  MutexLock lock(&mu_);
  recalled_ = true;
  if (holder_ == Holder::kNobody) turn_.Signal();
  return holder_;
}

void ReceiverRole::End() {
  MutexLock lock(&mu_);
  ended_ = true;
  offered_.Signal();
  turn_.Signal();
}

}  // namespace djinn
