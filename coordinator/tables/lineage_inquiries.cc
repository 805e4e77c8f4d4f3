#include "coordinator/tables/lineage_inquiries.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace djinn::coordinator {

// An operator's call that waits for a client's answer.
class LineageInquiries::Inquiry : public Waker {
 public:
  Inquiry(std::string session, absl::Duration end, Done call)
      : session_id(std::move(session)), deadline(end), done_(std::move(call)) {}

  // Called once, after the inquiry was removed.
  void Wake() override { done_(std::move(answer)); }

  const std::string session_id;
  const absl::Duration deadline;
  absl::StatusOr<v1::LineageAnswer> answer;

 private:
  const Done done_;
};

absl::StatusOr<uint64_t> LineageInquiries::Ask(std::string session_id,
                                               absl::Duration now, Done done) {
  if (inquiries_.size() >= kMost) {
    return MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_QUESTIONS",
                     absl::StrCat(kMost,
                                  " questions about lineage wait for their "
                                  "answers, and no more may"));
  }
  inquiries_.emplace(++last_number_, std::make_shared<Inquiry>(
                                         std::move(session_id), now + kPatience,
                                         std::move(done)));
  return last_number_;
}

void LineageInquiries::Take(const std::string& session_id,
                            const v1::LineageAnswer& answer, Wakes* wakes) {
  const auto found = inquiries_.find(answer.number());
  if (found == inquiries_.end() || found->second->session_id != session_id) {
    return;
  }
  found->second->answer = answer;
  wakes->Add(std::move(found->second));
  inquiries_.erase(found);
}

void LineageInquiries::Expire(absl::Duration now, Wakes* wakes) {
  for (auto it = inquiries_.begin(); it != inquiries_.end();) {
    if (now < it->second->deadline) {
      ++it;
      continue;
    }
    it->second->answer =
        MakeError(absl::StatusCode::kDeadlineExceeded, "CLIENT_SILENT",
                  absl::StrCat("the session's client was asked and has not "
                               "answered for ",
                               absl::FormatDuration(kPatience)));
    wakes->Add(std::move(it->second));
    it = inquiries_.erase(it);
  }
}

void LineageInquiries::End(const absl::Status& why, Wakes* wakes) {
  for (auto& [number, inquiry] : inquiries_) {
    inquiry->answer = why;
    wakes->Add(std::move(inquiry));
  }
  inquiries_.clear();
}

}  // namespace djinn::coordinator
