#include "client_lib/session/stream/session_entry.h"

#include <utility>

#include "client_lib/session/stream/worker_greeting.h"
#include "common/base/error.h"

namespace djinn {

SessionEntry::~SessionEntry() {
  stream_->Close(absl::CancelledError("another stream takes over"));
  stream_.reset();
}

void SessionEntry::Start(v1::ClientHello hello) {
  auto request = std::make_shared<v1::ControlRequest>();
  *request->mutable_hello() = std::move(hello);
  stream_->Start(this);
  // A refusal arrives as the end of the stream, with more detail.
  stream_->Send(std::move(request)).IgnoreError();
}

void SessionEntry::Enter(v1::Pull state) {
  auto request = std::make_shared<v1::ControlRequest>();
  v1::Ordered* const ordered = request->mutable_ordered();
  ordered->set_sequence(1);
  *ordered->mutable_migrate()->mutable_enter()->mutable_state() =
      std::move(state);
  {
    MutexLock lock(&mu_);
    entered_.enter = request;
  }
  stream_->Send(std::move(request)).IgnoreError();
}

std::optional<v1::WorkerHello> SessionEntry::greeting() const {
  MutexLock lock(&mu_);
  if (!greeted_) return std::nullopt;
  return entered_.hello;
}

bool SessionEntry::over() const {
  MutexLock lock(&mu_);
  return end_.has_value();
}

absl::StatusOr<SessionEntry::Entered> SessionEntry::outcome() const {
  MutexLock lock(&mu_);
  if (!end_->ok()) return *end_;
  return entered_;
}

void SessionEntry::OnMessage(v1::ControlResponse response) {
  {
    MutexLock lock(&mu_);
    if (end_.has_value()) return;
    if (response.has_window()) entered_.window = response.window();
    if (response.has_hello() != greeted_) {
      // The hello comes first, then its consequences.
      if (response.has_hello()) {
        greeted_ = true;
        entered_.hello = std::move(*response.mutable_hello());
      } else if (response.has_entered() && entered_.enter != nullptr &&
                 response.reply_number() == 1) {
        entered_.reply = std::move(*response.mutable_entered());
        End(entered_.reply.has_refused()
                ? StatusFromDetail(entered_.reply.refused())
                : absl::OkStatus());
      } else if (response.message_case() !=
                 v1::ControlResponse::MESSAGE_NOT_SET) {
        End(Violation("an answer to what it was not asked"));
      }
    } else {
      End(Violation("hello comes first, and once"));
    }
  }
  changed_();
}

void SessionEntry::OnBulk(uint64_t, uint64_t,
                          absl::Span<const absl::string_view>) {
  {
    MutexLock lock(&mu_);
    End(Violation("bytes that it was not asked for"));
  }
  changed_();
}

void SessionEntry::OnClosed(absl::Status status) {
  {
    MutexLock lock(&mu_);
    End(status.ok() ? absl::UnavailableError("it ended the stream")
                    : std::move(status));
  }
  changed_();
}

void SessionEntry::End(absl::Status status) {
  if (!end_.has_value()) end_ = std::move(status);
}

}  // namespace djinn
