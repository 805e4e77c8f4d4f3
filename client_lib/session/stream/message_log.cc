#include "client_lib/session/stream/message_log.h"

#include <algorithm>
#include <utility>

#include "djinn/v1/execution.pb.h"

namespace djinn {

void MessageLog::Append(std::shared_ptr<const v1::ControlRequest> message,
                        uint64_t bytes, bool ends_work,
                        std::vector<uint64_t> written) {
  Entry& entry = entries_.emplace_back(
      Entry{std::move(message), ++appended_, bytes, counted_messages_,
            counted_bytes_, ends_work, std::move(written)});
  if (IsExempt(entry)) return;
  ++counted_messages_;
  counted_bytes_ += bytes;
}

bool MessageLog::IsExempt(const Entry& entry) {
  return entry.message->ordered().has_free();
}

const MessageLog::Entry* MessageLog::Next() const {
  if (next_ > appended_) return nullptr;
  return &entries_[next_ - entries_.front().sequence];
}

uint64_t MessageLog::unsent_bytes() const {
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < unsent(); ++i) {
    bytes += entries_[entries_.size() - 1 - i].bytes;
  }
  return bytes;
}

void MessageLog::MarkSent() {
  sent_ = std::max(sent_, next_);
  ++next_;
}

bool MessageLog::Rewind(uint64_t received) {
  if (received < completed_ || received > sent_) return false;
  next_ = received + 1;
  return true;
}

bool MessageLog::Complete(uint64_t sequence) {
  if (sequence > sent_) return false;
  completed_ = std::max(completed_, sequence);
  next_ = std::max(next_, completed_ + 1);
  return true;
}

std::optional<MessageLog::Entry> MessageLog::TakeCompleted() {
  if (entries_.empty() || entries_.front().sequence > completed_) {
    return std::nullopt;
  }
  Entry entry = std::move(entries_.front());
  entries_.pop_front();
  return entry;
}

void MessageLog::SetWindow(const v1::Window& window) {
  window_messages_ = window.messages();
  window_bytes_ = window.bytes();
}

void MessageLog::GrowWindow(const v1::Window& window) {
  window_messages_ = std::max(window_messages_, window.messages());
  window_bytes_ = std::max(window_bytes_, window.bytes());
}

uint64_t MessageLog::outstanding() const {
  return entries_.empty()
             ? 0
             : counted_messages_ - entries_.front().messages_before;
}

uint64_t MessageLog::outstanding_bytes() const {
  return entries_.empty() ? 0 : counted_bytes_ - entries_.front().bytes_before;
}

}  // namespace djinn
