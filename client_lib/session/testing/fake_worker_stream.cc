// Implements the streams of a fake worker: hello and resume, windows and
// sequences, kept replies, and cuts.
#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/session/testing/fake_worker.h"
#include "common/base/error.h"
#include "common/hash/content_proof.h"

namespace djinn {

void FakeWorker::Serve(std::unique_ptr<WorkerStream> stream) {
  MutexLock lock(&mu_);
  link_ = links_.emplace_back(std::make_unique<Link>()).get();
  link_->worker = this;
  link_->stream = std::move(stream);
  closed_ = false;
  link_->stream->Start(link_);
  if (break_streams_ == 0) return;
  --break_streams_;
  EndLink(absl::UnavailableError("no route"));
}

void FakeWorker::Link::OnMessage(v1::ControlRequest message) {
  worker->OnMessage(this, std::move(message));
}

void FakeWorker::Link::OnBulk(uint64_t transfer_id, uint64_t offset,
                              absl::Span<const absl::string_view> pieces) {
  worker->OnBulk(this, transfer_id, offset, pieces);
}

void FakeWorker::Link::OnClosed(absl::Status status) {
  worker->OnClosed(this, std::move(status));
}

void FakeWorker::OnMessage(Link* link, v1::ControlRequest message) {
  MutexLock lock(&mu_);
  if (link->over || !PassesIn()) return;
  Handle(std::move(message));
  PassedIn();
}

void FakeWorker::OnClosed(Link* link, absl::Status status) {
  MutexLock lock(&mu_);
  link->over = true;
  if (link != link_) return;
  closed_ = true;
  close_status_ = std::move(status);
  if (left_ && close_status_.ok()) Reset();
  changed_.SignalAll();
}

void FakeWorker::EndLink(absl::Status status) {
  link_->over = true;
  link_->stream->Close(std::move(status));
}

bool FakeWorker::PassesIn() {
  ++incoming_;
  if (cut_ != Cut::kBeforeIn || incoming_ != cut_at_) return true;
  EndLink(absl::UnavailableError("cut"));
  return false;
}

void FakeWorker::PassedIn() {
  if (cut_ == Cut::kAfterIn && incoming_ == cut_at_ && !link_->over) {
    EndLink(absl::UnavailableError("cut"));
  }
}

template <typename Out>
void FakeWorker::Pass(Out send) {
  if (link_->over) return;
  ++outgoing_;
  const bool cut = outgoing_ == cut_at_;
  if (!cut || cut_ != Cut::kBeforeOut) send(link_->stream.get());
  if (cut && (cut_ == Cut::kBeforeOut || cut_ == Cut::kAfterOut)) {
    EndLink(absl::UnavailableError("cut"));
  }
}

void FakeWorker::Handle(v1::ControlRequest message) {
  if (message.has_hello()) {
    HandleHello(message.hello());
    return;
  }
  if (!link_->greeted) Violation("no hello");
  Acknowledge(message.acknowledged_reply());
  if (message.has_supply()) {
    HandleSupply(message.supply());
  } else if (message.has_proof()) {
    // A stream that was cut may bring the proof again.
    if (message.proof().transfer_id() != proving_ ||
        message.proof().mac().size() != kContentMacBytes) {
      Violation(absl::StrCat("proof of ", message.proof().transfer_id()));
    }
    proof_ = message.proof().mac();
  } else if (message.has_cancel()) {
    ++cancels_;
    changed_.SignalAll();
    if (ignore_cancel_) return;
    waiting_.clear();
    v1::ControlResponse response;
    response.mutable_cancelled();
    Respond(std::move(response));
    return;
  } else if (message.has_ordered()) {
    if (message.ordered().sequence() != ++last_sequence_) {
      Violation(absl::StrCat("sequence ", message.ordered().sequence(),
                             " instead of ", last_sequence_));
    }
    const uint64_t bytes = message.ordered().ByteSizeLong();
    if (!message.ordered().has_free()) {
      if (counted_ >= done_ + limits_.max_outstanding() ||
          counted_bytes_ >= done_bytes_ + limits_.max_outstanding_bytes() ||
          bytes > limits_.max_outstanding_bytes()) {
        Violation("window exceeded");
      }
      ++counted_;
      counted_bytes_ += bytes;
    }
    waiting_.push_back(std::move(*message.mutable_ordered()));
    changed_.SignalAll();
  }
  Work();
}

void FakeWorker::HandleHello(const v1::ClientHello& hello) {
  if (link_->greeted) Violation("second hello");
  if (hello.lease_token() != "token" || hello.session_id() != "session") {
    Violation("wrong hello");
  }
  link_->greeted = hello_seen_ = true;
  changed_.SignalAll();
  if (silent_) return;
  if (hello.worker_incarnation() != incarnation_) {
    EndLink(MakeError(absl::StatusCode::kFailedPrecondition,
                      "WRONG_INCARNATION", "restarted"));
    return;
  }
  // A new session may come before the worker noticed the end of the one that
  // left.
  if (!hello.has_resume() && left_) Reset();
  if (!hello.has_resume() && last_sequence_ > 0) Violation("no resume");
  if (hello.has_resume() && lost_) {
    EndLink(MakeError(absl::StatusCode::kFailedPrecondition, "SESSION_LOST",
                      "nothing to resume"));
    return;
  }
  v1::ControlResponse response;
  v1::WorkerHello* const welcome = response.mutable_hello();
  welcome->set_worker_id(wrong_id_ ? "other" : id_);
  welcome->set_incarnation(incarnation_);
  *welcome->mutable_limits() = limits_;
  *welcome->mutable_speed() = speed_;
  welcome->set_numerics(numerics_);
  if (hello.has_resume()) {
    ++resumes_;
    if (hello.resume().sent_sequence() < last_sequence_) {
      Violation("resumes before what was received");
    }
    Acknowledge(hello.resume().acknowledged_reply());
    welcome->set_received_sequence(last_sequence_);
    if (receiving_ != 0) {
      uint64_t received = 0;
      while (received_chunks_.count(received) > 0) received += kBulkChunkBytes;
      // Chunks beyond a gap come again.
      received_chunks_.erase(received_chunks_.lower_bound(received),
                             received_chunks_.end());
      welcome->mutable_transfer()->set_transfer_id(receiving_);
      welcome->mutable_transfer()->set_received_bytes(
          std::min<uint64_t>(received, received_bulk_.size()));
    }
  }
  Respond(std::move(response));
  if (!hello.has_resume()) return;
  const std::deque<FakeReply> replies = replies_;
  for (const FakeReply& reply : replies) SendReply(reply);
  if (needed_ != 0) {
    v1::ControlResponse need;
    need.mutable_need()->set_graph_id(needed_);
    Respond(std::move(need));
  }
}

void FakeWorker::Acknowledge(uint64_t number) {
  if (number <= acknowledged_) return;
  if (number > last_reply_) Violation("acknowledges what was not said");
  acknowledged_ = number;
  while (!replies_.empty() &&
         replies_.front().response.reply_number() <= number) {
    replies_.pop_front();
  }
}

void FakeWorker::Respond(v1::ControlResponse response, uint64_t transfer_id,
                         std::shared_ptr<const std::string> value) {
  response.set_completed_sequence(completed_);
  FakeReply reply{std::move(response), transfer_id, std::move(value)};
  if (reply.response.has_read() || reply.response.has_metadata() ||
      reply.response.has_transfer() || reply.response.has_poisoned() ||
      reply.response.has_admitted() || reply.response.has_profile() ||
      reply.response.has_left() || reply.response.has_entered() ||
      reply.response.has_metered() || reply.response.has_model_registered()) {
    reply.response.set_reply_number(++last_reply_);
    replies_.push_back(reply);
  }
  SendReply(reply);
}

void FakeWorker::SendReply(const FakeReply& reply) {
  auto response = std::make_shared<v1::ControlResponse>(reply.response);
  const uint64_t messages = done_ + limits_.max_outstanding();
  if (messages > link_->said_messages) {
    link_->said_messages = messages;
    response->mutable_window()->set_messages(messages);
    response->mutable_window()->set_bytes(done_bytes_ +
                                          limits_.max_outstanding_bytes());
  }
  response->set_content_room(content_room_);
  Pass([&](WorkerStream* stream) { stream->Send(response); });
  if (reply.value == nullptr) return;
  // Sends the last chunk first, because chunks may come in any order.
  const absl::string_view bytes = *reply.value;
  const uint64_t last = (bytes.size() - 1) / kBulkChunkBytes * kBulkChunkBytes;
  for (uint64_t offset = last;; offset -= kBulkChunkBytes) {
    Pass([&](WorkerStream* stream) {
      stream->SendBulk(reply.transfer_id, offset,
                       {bytes.substr(offset, kBulkChunkBytes), reply.value});
    });
    if (offset == 0) break;
  }
}

}  // namespace djinn
