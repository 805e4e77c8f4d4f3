#include "client_lib/session/device/answers/answer_receiver.h"

#include <algorithm>
#include <utility>

#include "client_lib/session/model/fork_guard.h"

namespace djinn {

AnswerReceiver::~AnswerReceiver() {
  if (IsForkedChild()) (void)stream_.release();
}

void AnswerReceiver::Begin(std::unique_ptr<ClientStream> stream) {
  MutexLock lock(&mu_);
  leads_bulk_ = stream->LeadsBulk();
  stream_ = std::move(stream);
}

void AnswerReceiver::SetConnected(bool connected) {
  MutexLock lock(&mu_);
  connected_ = connected;
}

ClientStream* AnswerReceiver::stream() const {
  MutexLock lock(&mu_);
  return stream_.get();
}

void AnswerReceiver::AwaitNoUsers(const Deadline& deadline) {
  MutexLock lock(&mu_);
  while (users_ > 0 && !deadline.passed()) WaitUntil(&left_, &mu_, deadline);
}

bool AnswerReceiver::End(const Deadline& deadline,
                         std::unique_ptr<ClientStream>* ended) {
  MutexLock lock(&mu_);
  while (users_ > 0 && !deadline.passed()) WaitUntil(&left_, &mu_, deadline);
  if (users_ > 0) return false;
  *ended = std::move(stream_);
  return true;
}

void AnswerReceiver::Leak() {
  MutexLock lock(&mu_);
  (void)stream_.release();
}

ClientStream* AnswerReceiver::Enter() {
  MutexLock lock(&mu_);
  ++users_;
  return stream_.get();
}

ClientStream* AnswerReceiver::EnterConnected() {
  MutexLock lock(&mu_);
  if (!connected_) return nullptr;
  ++users_;
  return stream_.get();
}

void AnswerReceiver::Leave() {
  MutexLock lock(&mu_);
  LeaveLocked();
}

void AnswerReceiver::LeaveLocked() {
  --users_;
  left_.SignalAll();
}

bool AnswerReceiver::Lead(Mutex* mu, absl::FunctionRef<bool()> done,
                          const Deadline& deadline) {
  ClientStream* stream = nullptr;
  {
    MutexLock lock(&mu_);
    if (!connected_) return false;
    stream = stream_.get();
    ++users_;
    ++leaders_;
  }
  mu->Unlock();
  const bool received = stream->Lead(
      [mu, done] {
        MutexLock lock(mu);
        return done();
      },
      std::min(deadline.left(), kLeading));
  bool reclaims = false;
  {
    MutexLock lock(&mu_);
    --leaders_;
    reclaims = followers_ > 0;
  }
  if (reclaims) stream->Reclaim();
  Leave();
  mu->Lock();
  return received;
}

void AnswerReceiver::WaitOrReceive(Mutex* mu, CondVar* changed,
                                   absl::FunctionRef<bool()> done,
                                   const Deadline& deadline, bool may_lead) {
  if (may_lead && (Lead(mu, done, deadline) || done())) return;
  ClientStream* idle = nullptr;
  {
    MutexLock lock(&mu_);
    ++followers_;
    if (connected_ && leaders_ == 0) {
      // Perhaps no thread receives, because the stream lends that role for a
      // moment after a leader returns.
      idle = stream_.get();
      ++users_;
    }
  }
  if (idle != nullptr) {
    mu->Unlock();
    idle->Reclaim();
    Leave();
    mu->Lock();
  }
  if (!done()) WaitUntil(changed, mu, deadline);
  MutexLock lock(&mu_);
  --followers_;
}

bool AnswerReceiver::led() const {
  MutexLock lock(&mu_);
  return leaders_ > 0;
}

void AnswerReceiver::Reclaim() {
  ClientStream* const stream = EnterConnected();
  if (stream == nullptr) return;
  stream->Reclaim();
  Leave();
}

}  // namespace djinn
