#include "gpu_worker/session/state/inbox.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "gpu_worker/session/base/violation.h"

namespace djinn::worker {

namespace {

// The most bytes of a Free besides its ids; a valid Free needs no more.
constexpr uint64_t kMaxBesidesIds = 64;

}  // namespace

absl::Status Inbox::Add(v1::Ordered message, absl::Duration deadline,
                        std::optional<SessionProfile::Mark> mark,
                        absl::Duration arrived) {
  if (message.sequence() != 0 && message.sequence() <= received_) {
    return absl::OkStatus();
  }
  if (message.sequence() != received_ + 1) {
    return Violation(
        absl::StrCat("sequence ", message.sequence(), " after ", received_));
  }
  const uint64_t bytes = message.ByteSizeLong();
  if (message.has_free()) {
    const uint64_t most = limits_.max_outstanding_bytes() / sizeof(uint64_t);
    const auto ids = static_cast<uint64_t>(message.free().storages_size());
    // An id takes ten bytes at most, and the rest of the message few.
    if (bytes > 10 * ids + kMaxBesidesIds) {
      return MakeError(absl::StatusCode::kResourceExhausted, "WINDOW_EXCEEDED",
                       absl::StrCat("a message of ", bytes, " bytes frees ",
                                    ids, " storages"));
    }
    if (freed_ids_ + ids > most) {
      return MakeError(
          absl::StatusCode::kResourceExhausted, "WINDOW_EXCEEDED",
          absl::StrCat(freed_ids_ + ids, " storages wait to be freed, at most ",
                       most, " may"));
    }
    freed_ids_ += ids;
    ++received_;
    // Frees in a row share one item.
    if (!items_.empty() && items_.back().message.has_free()) {
      v1::Ordered& last = items_.back().message;
      last.set_sequence(received_);
      last.mutable_free()->MergeFrom(message.free());
      items_.back().bytes += bytes;
    } else {
      items_.push_back(
          {std::move(message), bytes, deadline, arrived, std::nullopt});
    }
    return absl::OkStatus();
  }
  if (received_messages_ >= window_.messages() ||
      received_bytes_ >= window_.bytes() ||
      bytes > limits_.max_outstanding_bytes()) {
    return MakeError(
        absl::StatusCode::kResourceExhausted, "WINDOW_EXCEEDED",
        absl::StrCat("a message of ", bytes, " bytes after ",
                     received_messages_, " of ", received_bytes_,
                     " bytes; granted are ", window_.messages(), " of ",
                     window_.bytes(), " bytes, each of at most ",
                     limits_.max_outstanding_bytes()));
  }
  ++received_;
  ++received_messages_;
  received_bytes_ += bytes;
  items_.push_back({std::move(message), bytes, deadline, arrived, mark});
  return absl::OkStatus();
}

Inbox::Item Inbox::Take() {
  Item item = std::move(items_.front());
  items_.pop_front();
  freed_ids_ -= static_cast<uint64_t>(item.message.free().storages_size());
  return item;
}

void Inbox::PutBack(Item item) { items_.push_front(std::move(item)); }

Inbox::Forgotten Inbox::Clear() {
  Forgotten forgotten;
  for (const Item& item : items_) {
    forgotten.runs += item.message.has_run();
    forgotten.bytes += item.bytes;
  }
  items_.clear();
  freed_ids_ = 0;
  return forgotten;
}

void Inbox::Complete(uint64_t sequence, uint64_t bytes, bool counts) {
  completed_ = sequence;
  if (!counts) return;
  completed_bytes_ += bytes;
  ++completed_messages_;
}

void Inbox::Grant(WindowWidth width) {
  window_.set_messages(
      std::max(window_.messages(), completed_messages_ + width.messages));
  window_.set_bytes(std::max(window_.bytes(), completed_bytes_ + width.bytes));
}

}  // namespace djinn::worker
