#include "client_lib/session/device/outgoing/work_queue.h"

#include <variant>

#include "absl/base/optimization.h"
#include "client_lib/session/model/debug_flags.h"
#include "client_lib/session/profile/request_tracer.h"

namespace djinn {

void WorkQueue::SetFull() {
  full_.store(works_.size() + (held_ ? 1 : 0) >= room_messages_ ||
                  bytes_ >= room_bytes_,
              std::memory_order_relaxed);
}

void WorkQueue::Push(Work work, bool needs_lease) {
  if (needs_lease) NeedLease();
  if (ABSL_PREDICT_FALSE(debug::Has(debug::kTrace))) {
    const TracedRequest* const request = RequestTracer::Current();
    if (request != nullptr) work.trace = request->context;
  }
  MutexLock lock(&mu_);
  bytes_ += work.footprint_bytes;
  ++pushed_;
  works_.push_back(std::move(work));
  SetFull();
}

void WorkQueue::PushFirst(Work offer) {
  NeedLease();
  MutexLock lock(&mu_);
  ++pushed_;
  overtaken_ = held_;
  works_.push_front(std::move(offer));
  SetFull();
}

std::vector<Segment*> WorkQueue::TakeCleared() {
  MutexLock lock(&mu_);
  return std::exchange(cleared_, {});
}

WorkQueue::Size WorkQueue::size() const {
  MutexLock lock(&mu_);
  return {works_.size(), bytes_};
}

uint64_t WorkQueue::pushed() const {
  MutexLock lock(&mu_);
  return pushed_;
}

uint64_t WorkQueue::popped() const {
  MutexLock lock(&mu_);
  return pushed_ - works_.size();
}

std::optional<Work> WorkQueue::Pop() {
  MutexLock lock(&mu_);
  if (works_.empty()) return std::nullopt;
  std::optional<Work> work(std::move(works_.front()));
  works_.pop_front();
  bytes_ -= work->footprint_bytes;
  held_ = true;
  overtaken_ = false;
  return work;
}

bool WorkQueue::held() const {
  MutexLock lock(&mu_);
  return held_;
}

bool WorkQueue::overtaken() const {
  MutexLock lock(&mu_);
  return held_ && overtaken_;
}

void WorkQueue::GiveBack(Segment* segment) {
  MutexLock lock(&mu_);
  cleared_.push_back(segment);
}

bool WorkQueue::next_is_simple() const {
  MutexLock lock(&mu_);
  if (works_.empty()) return false;
  const auto& action = works_.front().action;
  return std::holds_alternative<RunWork>(action) ||
         std::holds_alternative<ReplayWork>(action) ||
         std::holds_alternative<ReadWork>(action);
}

void WorkQueue::Visit(absl::FunctionRef<void(Work&)> visit) {
  MutexLock lock(&mu_);
  for (Work& work : works_) visit(work);
}

std::deque<Work> WorkQueue::Drop() {
  MutexLock lock(&mu_);
  bytes_ = 0;
  held_ = false;
  std::deque<Work> works = std::exchange(works_, {});
  SetFull();
  return works;
}

void WorkQueue::SetRoom(const MessageLog& log, bool ends) {
  MutexLock lock(&mu_);
  if (ends) held_ = false;
  room_messages_ = log.room_messages();
  room_bytes_ = log.room_bytes();
  SetFull();
}

}  // namespace djinn
