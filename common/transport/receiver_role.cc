#include "common/transport/receiver_role.h"

#include "common/base/clock.h"

namespace djinn {

ReceiverRole::Turn ReceiverRole::Take(absl::FunctionRef<bool()> done,
                                      absl::Duration patience) {
  uint64_t wakes;
  {
    MutexLock lock(&mu_);
    if (ended_ || waiting_) return Turn::kRefused;
    if (holder_ == Holder::kNobody && !reclaimed_) {
      holder_ = Holder::kLeader;
      ++leaderships_;
      return Turn::kTaken;
    }
    waiting_ = wanted_ = true;
    wakes = wakes_;
  }
  const absl::Duration until = Clock::Real()->Monotonic() + patience;
  bool over = done();
  MutexLock lock(&mu_);
  while (!over && wakes_ == wakes && !ended_ &&
         (holder_ != Holder::kNobody || reclaimed_)) {
    over = offered_.WaitWithTimeout(&mu_, until - Clock::Real()->Monotonic());
  }
  waiting_ = false;
  if (ended_) return Turn::kRefused;
  if (over || holder_ != Holder::kNobody || reclaimed_) return Turn::kOver;
  holder_ = Holder::kLeader;
  ++leaderships_;
  return Turn::kTaken;
}

void ReceiverRole::Leave() {
  MutexLock lock(&mu_);
  holder_ = Holder::kNobody;
  if (resting_ || reclaimed_) turn_.Signal();
  WakeLocked();
}

void ReceiverRole::Lend() {
  MutexLock lock(&mu_);
  // The received message may be what a waiting leader waits for.
  WakeLocked();
  if ((wanted_ || waiting_) && !reclaimed_ && !ended_) {
    wanted_ = false;
    holder_ = Holder::kNobody;
    AwaitTurn();
    holder_ = Holder::kThread;
  }
  reclaimed_ = false;
}

void ReceiverRole::AwaitTurn() {
  for (uint64_t seen = leaderships_;;) {
    if (holder_ == Holder::kLeader && leaderships_ == seen) {
      resting_ = true;
      turn_.Wait(&mu_);
      resting_ = false;
      continue;
    }
    if (holder_ == Holder::kNobody && (reclaimed_ || ended_)) return;
    seen = leaderships_;
    const bool late = turn_.WaitWithTimeout(&mu_, kLent);
    if (late && holder_ == Holder::kNobody && leaderships_ == seen) return;
  }
}

void ReceiverRole::Keep() {
  MutexLock lock(&mu_);
  reclaimed_ = false;
}

void ReceiverRole::WakeLocked() {
  ++wakes_;
  if (waiting_) offered_.Signal();
}

ReceiverRole::Holder ReceiverRole::Wake() {
  MutexLock lock(&mu_);
  WakeLocked();
  return holder_;
}

ReceiverRole::Holder ReceiverRole::Reclaim() {
  MutexLock lock(&mu_);
  reclaimed_ = true;
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
