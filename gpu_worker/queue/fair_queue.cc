#include "gpu_worker/queue/fair_queue.h"

#include <algorithm>

namespace djinn::worker {

void FairQueue::Join(uint64_t key) { members_.try_emplace(key); }

void FairQueue::Leave(uint64_t key) {
  const auto found = members_.find(key);
  if (found == members_.end()) return;
  const Member& member = found->second;
  if (member.state == State::kWaiting) {
    waiting_.erase(Position(member.virtual_time, member.turn, key));
  }
  members_.erase(found);
}

void FairQueue::Wait(uint64_t key, Member* member) {
  member->state = State::kWaiting;
  member->turn = next_turn_++;
  waiting_.emplace(member->virtual_time, member->turn, key);
}

void FairQueue::MakeRunnable(uint64_t key) {
  const auto found = members_.find(key);
  if (found == members_.end()) return;
  Member& member = found->second;
  if (member.state == State::kIdle) {
    member.virtual_time = std::max(member.virtual_time, now_);
    Wait(key, &member);
  } else if (member.state == State::kRunning) {
    member.state = State::kRunningAgain;
  }
}

uint64_t FairQueue::Take() {
  const auto first = waiting_.begin();
  const uint64_t key = std::get<2>(*first);
  now_ = std::max(now_, std::get<0>(*first));
  waiting_.erase(first);
  members_.find(key)->second.state = State::kRunning;
  return key;
}

void FairQueue::Done(uint64_t key, absl::Duration used, bool more) {
  const auto found = members_.find(key);
  if (found == members_.end()) return;
  Member& member = found->second;
  member.virtual_time += std::max(used, absl::Microseconds(1));
  if (more || member.state == State::kRunningAgain) {
    Wait(key, &member);
  } else {
    member.state = State::kIdle;
  }
}

}  // namespace djinn::worker
