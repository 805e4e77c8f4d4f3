#include "gpu_worker/pull/send_order.h"

#include <algorithm>
#include <utility>

namespace djinn::worker {

bool SendOrder::IsMoreUrgent(const SendUrgency& a, const SendUrgency& b) {
  if (a.priority != b.priority) return a.priority > b.priority;
  if (a.tenant != b.tenant) return false;
  if (a.deadline != b.deadline) return a.deadline < b.deadline;
  return IsAhead(a, b);
}

bool SendOrder::IsAhead(const SendUrgency& a, const SendUrgency& b) {
  return !a.session_id.empty() && a.session_id == b.session_id &&
         scheduler::MovesBefore(a.rank, b.rank);
}

uint64_t SendOrder::Begin(SendUrgency urgency) {
  MutexLock lock(&mu_);
  for (auto& [number, other] : senders_) {
    absl::Duration& deadline = other.urgency.deadline;
    if (IsAhead(urgency, other.urgency)) {
      urgency.deadline = std::min(urgency.deadline, deadline);
    } else if (IsAhead(other.urgency, urgency)) {
      deadline = std::min(deadline, urgency.deadline);
    }
  }
  senders_[++last_] = {std::move(urgency), clock_->Monotonic()};
  return last_;
}

bool SendOrder::MaySend(uint64_t number) {
  MutexLock lock(&mu_);
  Sender& sender = senders_.at(number);
  const absl::Duration now = clock_->Monotonic();
  size_t ahead = 0;
  for (const auto& [other, more_urgent] : senders_) {
    if (!IsMoreUrgent(more_urgent.urgency, sender.urgency) ||
        now - more_urgent.sent >= kStalled) {
      continue;
    }
    if (sender.passed_by < kShare) return false;
    if (!IsAhead(more_urgent.urgency, sender.urgency)) continue;
    if (++ahead == scheduler::kTransfersAtOnce &&
        sender.passed_by < kShareBehind) {
      return false;
    }
  }
  sender.passed_by = 0;
  sender.sent = now;
  for (auto& [other, less_urgent] : senders_) {
    if (IsMoreUrgent(sender.urgency, less_urgent.urgency)) {
      ++less_urgent.passed_by;
    }
  }
  return true;
}

void SendOrder::End(uint64_t sender) {
  MutexLock lock(&mu_);
  senders_.erase(sender);
}

size_t SendOrder::senders() const {
  MutexLock lock(&mu_);
  return senders_.size();
}

}  // namespace djinn::worker
