#include "gpu_worker/session/state/outbox.h"

#include <algorithm>
#include <utility>

#include "djinn/v1/execution.pb.h"

namespace djinn::worker {
namespace {

// The cost of a message besides its bytes.
constexpr uint64_t kItemBytes = 64;

uint64_t CostOf(const v1::ControlResponse& message) {
  return message.ByteSizeLong() + kItemBytes;
}

bool SaysNothingElse(const v1::ControlResponse& message) {
  return message.message_case() == v1::ControlResponse::MESSAGE_NOT_SET;
}

}  // namespace

void Outbox::Attach(WorkerStream* stream, uint64_t number,
                    std::vector<v1::ControlResponse> news) {
  {
    MutexLock lock(&mu_);
    if (number <= stream_number_) return;
    stream_number_ = number;
    LeaveStream();
    // A newer stream may have been attached while LeaveStream() waited.
    if (number < stream_number_) return;
    stream_ = stream;
    stalled_ = bulk_stalled_ = false;
    moved_ = clock_->Monotonic();
    for (v1::ControlResponse& message : news) {
      AddWaiting(
          std::make_shared<const v1::ControlResponse>(std::move(message)));
    }
    for (const Kept& kept : kept_) {
      waiting_.push_back(kept.message);
      if (!kept.value.bytes.empty()) {
        values_.push_back({kept.transfer_id, kept.value, 0});
      }
    }
  }
  Send();
}

void Outbox::Detach(const WorkerStream* stream) {
  bool has_room = false;
  {
    MutexLock lock(&mu_);
    const bool was_full = FullLocked();
    if (stream_ == stream) LeaveStream();
    // Attach() may still wait for the thread that is inside this stream.
    while (inside_ == stream) idle_.Wait(&mu_);
    has_room = was_full && !FullLocked();
  }
  if (has_room) on_room_();
}

void Outbox::LeaveStream() {
  const WorkerStream* const left = std::exchange(stream_, nullptr);
  DropWaiting();
  // Another thread may attach the next stream while this one waits.
  while (left != nullptr && inside_ == left) idle_.Wait(&mu_);
}

void Outbox::DropWaiting() {
  while (!waiting_.empty()) TakeWaiting();
  values_.clear();
}

void Outbox::Forget() {
  std::deque<Kept> forgotten;
  MutexLock lock(&mu_);
  DropWaiting();
  for (const Kept& kept : kept_) bytes_ -= kept.bytes;
  forgotten.swap(kept_);
}

void Outbox::AddWaiting(Message message) {
  if (message->reply_number() == 0) bytes_ += CostOf(*message);
  waiting_.push_back(std::move(message));
}

Outbox::Message Outbox::TakeWaiting() {
  Message message = std::move(waiting_.front());
  waiting_.pop_front();
  if (message->reply_number() == 0) bytes_ -= CostOf(*message);
  return message;
}

void Outbox::Push(v1::ControlResponse reply) { Push(std::move(reply), 0, {}); }

void Outbox::Push(v1::ControlResponse reply, uint64_t transfer_id,
                  SharedBytes value) {
  {
    MutexLock lock(&mu_);
    reply.set_reply_number(++last_number_);
    const uint64_t cost = CostOf(reply);
    const uint64_t bytes = cost + value.bytes.size();
    traffic_->Add(Traffic::kMessagesOut, cost - kItemBytes);
    traffic_->Add(Traffic::kBulkOut, value.bytes.size());
    auto message =
        std::make_shared<const v1::ControlResponse>(std::move(reply));
    bytes_ += bytes;
    if (FullLocked()) moved_ = clock_->Monotonic();
    if (stream_ != nullptr) {
      waiting_.push_back(message);
      if (!value.bytes.empty()) values_.push_back({transfer_id, value, 0});
    }
    kept_.push_back({std::move(message), transfer_id, std::move(value), bytes});
  }
  Send();
}

void Outbox::PushNews(v1::ControlResponse news) {
  {
    MutexLock lock(&mu_);
    if (stream_ == nullptr) return;
    if (SaysNothingElse(news) && !waiting_.empty() &&
        SaysNothingElse(*waiting_.back())) {
      // Merges the two: the later one replaces the earlier.
      if (!news.has_window() && waiting_.back()->has_window()) {
        *news.mutable_window() = waiting_.back()->window();
      }
      if (!news.has_content_room() && waiting_.back()->has_content_room()) {
        news.set_content_room(waiting_.back()->content_room());
      }
      bytes_ -= CostOf(*waiting_.back());
      waiting_.pop_back();
    }
    AddWaiting(std::make_shared<const v1::ControlResponse>(std::move(news)));
  }
  Send();
}

bool Outbox::Acknowledge(uint64_t number) {
  // Destroyed after the lock is released, because a value may own much.
  std::deque<Kept> handled;
  bool has_room = false;
  {
    MutexLock lock(&mu_);
    if (number > last_number_) return false;
    const bool was_full = FullLocked();
    if (was_full && !kept_.empty() &&
        kept_.front().message->reply_number() <= number) {
      moved_ = clock_->Monotonic();
    }
    while (!kept_.empty() && kept_.front().message->reply_number() <= number) {
      bytes_ -= kept_.front().bytes;
      handled.push_back(std::move(kept_.front()));
      kept_.pop_front();
    }
    has_room = was_full && !FullLocked();
  }
  if (has_room) on_room_();
  return true;
}

uint64_t Outbox::last_number() const {
  MutexLock lock(&mu_);
  return last_number_;
}

bool Outbox::Full() const {
  MutexLock lock(&mu_);
  return FullLocked();
}

std::optional<Outbox::Standstill> Outbox::standstill() const {
  MutexLock lock(&mu_);
  if (stream_ == nullptr || !FullLocked()) return std::nullopt;
  return Standstill{moved_, bytes_};
}

void Outbox::OnRoom() {
  {
    MutexLock lock(&mu_);
    stalled_ = false;
  }
  Send();
}

void Outbox::OnBulkRoom() {
  {
    MutexLock lock(&mu_);
    bulk_stalled_ = false;
  }
  Send();
}

void Outbox::Send() {
  {
    MutexLock lock(&mu_);
    // The thread that is sending will see what was added.
    if (sending_) return;
    sending_ = true;
  }
  while (SendOne()) {
  }
}

bool Outbox::SendOne() {
  WorkerStream* stream = nullptr;
  Message message;
  Value chunk;
  bool has_room = false;
  bool says = false;
  {
    MutexLock lock(&mu_);
    says = !stalled_ && !waiting_.empty();
    if (stream_ == nullptr || (!says && (bulk_stalled_ || values_.empty()))) {
      sending_ = false;
      return false;
    }
    inside_ = stream = stream_;
    if (FullLocked()) moved_ = clock_->Monotonic();
    // Assumes that the stream is full until it says otherwise, or until
    // OnRoom() does meanwhile.
    (says ? stalled_ : bulk_stalled_) = true;
    if (says) {
      const bool was_full = FullLocked();
      message = TakeWaiting();
      has_room = was_full && !FullLocked();
    } else {
      Value& value = values_.front();
      chunk = value;
      chunk.rest.bytes = value.rest.bytes.substr(0, kBulkChunkBytes);
      value.rest.bytes.remove_prefix(chunk.rest.bytes.size());
      value.offset += chunk.rest.bytes.size();
      if (value.rest.bytes.empty()) values_.pop_front();
    }
  }
  const bool room = says ? stream->Send(std::move(message))
                         : stream->SendBulk(chunk.transfer_id, chunk.offset,
                                            std::move(chunk.rest));
  {
    MutexLock lock(&mu_);
    if (room) (says ? stalled_ : bulk_stalled_) = false;
    inside_ = nullptr;
    idle_.SignalAll();
  }
  if (has_room) on_room_();
  return true;
}

}  // namespace djinn::worker
