// Implements the streams of a fake worker: hello and resume, windows and
// sequences, kept replies, and cuts.
#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client_lib/session/testing/fake_worker.h"
#include "common/base/error.h"

namespace djinn {

void FakeWorker::Serve(std::unique_ptr<WorkerStream> stream) {
  MutexLock lock(&mu_);
  link_ = links_.emplace_back(std::make_unique<Link>()).get();
  link_->worker = this;
  link_->stream = std::move(stream);
  closed_ = false;
  link_->stream->Start(link_);
  if (script_.break_streams == 0) return;
  --script_.break_streams;
  EndLink(absl::UnavailableError("no route"));
}

void FakeWorker::Link::OnMessage(v1::ControlRequest message) {
  MutexLock lock(&worker->mu_);
  if (over || !worker->PassesIn()) return;
  worker->Handle(std::move(message));
  worker->PassedIn();
}

void FakeWorker::Link::OnBulk(uint64_t transfer_id, uint64_t offset,
                              absl::Span<const absl::string_view> pieces) {
  MutexLock lock(&worker->mu_);
  while (worker->script_.hold_bulk) worker->changed_.Wait(&worker->mu_);
  if (worker->script_.bulk_delay > absl::ZeroDuration()) {
    absl::SleepFor(worker->script_.bulk_delay);
  }
  if (over || !worker->PassesIn()) return;
  if (!worker->executor_.TakeChunk(transfer_id, offset, pieces)) return;
  worker->Work();
  worker->PassedIn();
}

void FakeWorker::Link::OnClosed(absl::Status status) {
  MutexLock lock(&worker->mu_);
  over = true;
  if (this != worker->link_) return;
  worker->closed_ = true;
  worker->close_status_ = std::move(status);
  if (worker->executor_.left() && worker->close_status_.ok()) worker->Reset();
  worker->changed_.SignalAll();
}

void FakeWorker::EndLink(absl::Status status) {
  if (link_ == nullptr) return;
  link_->over = true;
  link_->stream->Close(std::move(status));
}

bool FakeWorker::PassesIn() {
  ++seen_.incoming;
  if (script_.cut != FakeScript::Cut::kBeforeIn ||
      seen_.incoming != script_.cut_at)
    return true;
  EndLink(absl::UnavailableError("cut"));
  return false;
}

void FakeWorker::PassedIn() {
  if (script_.cut == FakeScript::Cut::kAfterIn &&
      seen_.incoming == script_.cut_at && !link_->over) {
    EndLink(absl::UnavailableError("cut"));
  }
}

template <typename Out>
void FakeWorker::Pass(Out send) {
  if (link_->over) return;
  ++seen_.outgoing;
  const bool cut = seen_.outgoing == script_.cut_at;
  if (!cut || script_.cut != FakeScript::Cut::kBeforeOut)
    send(link_->stream.get());
  if (cut && (script_.cut == FakeScript::Cut::kBeforeOut ||
              script_.cut == FakeScript::Cut::kAfterOut)) {
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
    executor_.Supply(message.supply());
  } else if (message.has_proof()) {
    executor_.TakeProof(message.proof());
  } else if (message.has_cancel()) {
    ++seen_.cancels;
    changed_.SignalAll();
    if (script_.ignore_cancel) return;
    flow_.waiting.clear();
    v1::ControlResponse response;
    response.mutable_cancelled();
    Respond(std::move(response));
    return;
  } else if (message.has_ordered()) {
    HandleOrdered(message.mutable_ordered());
  }
  Work();
}

void FakeWorker::HandleOrdered(v1::Ordered* ordered) {
  if (ordered->sequence() != ++flow_.last_sequence) {
    Violation(absl::StrCat("sequence ", ordered->sequence(), " instead of ",
                           flow_.last_sequence));
  }
  const uint64_t bytes = ordered->ByteSizeLong();
  if (!ordered->has_free()) {
    if (flow_.counted >= flow_.done + limits_.max_outstanding() ||
        flow_.counted_bytes >=
            flow_.done_bytes + limits_.max_outstanding_bytes() ||
        bytes > limits_.max_outstanding_bytes()) {
      Violation("window exceeded");
    }
    ++flow_.counted;
    flow_.counted_bytes += bytes;
  }
  flow_.waiting.push_back(std::move(*ordered));
  changed_.SignalAll();
}

void FakeWorker::HandleHello(const v1::ClientHello& hello) {
  if (link_->greeted) Violation("second hello");
  if (hello.lease_token() != "token" || hello.session_id() != "session") {
    Violation("wrong hello");
  }
  link_->greeted = true;
  if (script_.silent) return;
  if (hello.worker_incarnation() != incarnation_) {
    EndLink(MakeError(absl::StatusCode::kFailedPrecondition,
                      "WRONG_INCARNATION", "restarted"));
    return;
  }
  // A new session may arrive before the worker has noticed the end of the
  // session that left.
  if (!hello.has_resume() && (executor_.left() || script_.begins_anew)) {
    Reset();
  }
  if (!hello.has_resume() && flow_.last_sequence > 0) Violation("no resume");
  if (hello.has_resume() && lost_) {
    EndLink(MakeError(absl::StatusCode::kFailedPrecondition, "SESSION_LOST",
                      "nothing to resume"));
    return;
  }
  v1::ControlResponse response;
  v1::WorkerHello* const welcome = response.mutable_hello();
  welcome->set_worker_id(script_.wrong_id ? "other" : id_);
  welcome->set_incarnation(incarnation_);
  *welcome->mutable_limits() = limits_;
  if (script_.memory_bytes != 0) {
    welcome->mutable_limits()->set_memory_bytes(script_.memory_bytes);
  }
  *welcome->mutable_speed() = script_.speed;
  welcome->set_numerics(script_.numerics);
  welcome->set_executor_per_tenant(script_.executor_per_tenant);
  if (hello.has_resume()) {
    ++seen_.resumes;
    if (hello.resume().sent_sequence() < flow_.last_sequence) {
      Violation("resumes before what was received");
    }
    Acknowledge(hello.resume().acknowledged_reply());
    welcome->set_received_sequence(flow_.last_sequence);
    executor_.DescribeTransfer(welcome);
  }
  Respond(std::move(response));
  if (!hello.has_resume()) return;
  const std::deque<FakeReply> replies = flow_.replies;
  for (const FakeReply& reply : replies) SendReply(reply);
  if (executor_.needed() != 0) {
    v1::ControlResponse need;
    need.mutable_need()->set_graph_id(executor_.needed());
    Respond(std::move(need));
  }
}

void FakeWorker::Work() {
  while (!paused_ && !flow_.waiting.empty() &&
         flow_.replies.size() < kMaxUnacknowledged) {
    const bool carried = executor_.Carry(flow_.waiting.front());
    changed_.SignalAll();
    if (!carried) return;
    if (!flow_.waiting.front().has_free()) {
      ++flow_.done;
      flow_.done_bytes += flow_.waiting.front().ByteSizeLong();
    }
    flow_.completed = flow_.waiting.front().sequence();
    seen_.received.push_back(std::move(flow_.waiting.front()));
    flow_.waiting.pop_front();
    Respond({});
  }
}

void FakeWorker::Reset() {
  flow_ = {};
  executor_.Reset();
}

void FakeWorker::Violation(std::string what) {
  seen_.violations.push_back(std::move(what));
}

void FakeWorker::Acknowledge(uint64_t number) {
  if (number <= flow_.acknowledged) return;
  if (number > flow_.last_reply) Violation("acknowledges what was not said");
  flow_.acknowledged = number;
  while (!flow_.replies.empty() &&
         flow_.replies.front().response.reply_number() <= number) {
    flow_.replies.pop_front();
  }
}

void FakeWorker::Respond(v1::ControlResponse response, uint64_t transfer_id,
                         std::shared_ptr<const std::string> value) {
  response.set_completed_sequence(flow_.completed);
  FakeReply reply{std::move(response), transfer_id, std::move(value)};
  if (reply.response.has_read() || reply.response.has_metadata() ||
      reply.response.has_transfer() || reply.response.has_poisoned() ||
      reply.response.has_admitted() || reply.response.has_profile() ||
      reply.response.has_left() || reply.response.has_entered() ||
      reply.response.has_metered() || reply.response.has_model_registered()) {
    reply.response.set_reply_number(++flow_.last_reply);
    flow_.replies.push_back(reply);
  }
  SendReply(reply);
}

void FakeWorker::SendReply(const FakeReply& reply) {
  auto response = std::make_shared<v1::ControlResponse>(reply.response);
  const uint64_t messages = flow_.done + limits_.max_outstanding();
  if (messages > link_->said_messages) {
    link_->said_messages = messages;
    response->mutable_window()->set_messages(messages);
    response->mutable_window()->set_bytes(flow_.done_bytes +
                                          limits_.max_outstanding_bytes());
  }
  response->set_content_room(script_.content_room);
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
