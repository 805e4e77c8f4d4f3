#include "gpu_worker/supervisor/contents/connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/proto_duration.h"
#include "common/base/status_macros.h"
#include "common/hash/content_proof.h"
#include "common/log/log.h"
#include "gpu_worker/supervisor/contents/packets.h"

namespace djinn::worker {
namespace {

// The rate at which the slowest clients compute a proof.
constexpr double kBytesPerSecond = 64 << 20;
// How often the thread checks the deadlines of looks.
constexpr int kTickMilliseconds = 1000;
// Packets that the thread serves before it checks for other events.
constexpr int kMaxPackets = 64;
// Messages per second that one executor may send for ever, besides its burst.
constexpr double kMessagesPerSecond = 2'000;
constexpr int kPauseMilliseconds = 10;
constexpr absl::Duration kLogPause = absl::Minutes(1);

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("an executor's message about contents: ", what));
}

v1::ContentAnswer AnswerTo(uint64_t id) {
  v1::ContentAnswer answer;
  answer.set_id(id);
  return answer;
}

}  // namespace

ContentService::Connection::Connection(ContentService* service,
                                       uint64_t executor, Descriptor socket)
    : service_(*service),
      executor_(executor),
      socket_(std::move(socket)),
      last_round_(service->clock_->Monotonic()) {
  absl::StatusOr<Descriptor> event = MakeEvent();
  const char* missing = "descriptor";
  if (socket_.valid() && event.ok()) {
    alarm_->event = *std::move(event);
    try {
      thread_ = std::thread([this] { Run(); });
      return;
    } catch (const std::system_error&) {
      missing = "thread";
    }
  }
  log::Error("an executor's contents are not kept: something is used up",
             {{"executor", executor_}, {"missing", missing}});
  // The executor continues without them.
  shutdown(socket_.get(), SHUT_RDWR);
}

ContentService::Connection::~Connection() {
  alarm_->stopping = true;
  if (thread_.joinable()) {
    alarm_->Raise();
    thread_.join();
  }
  std::vector<std::shared_ptr<Buffer>> buffers;
  for (auto& [id, look] : looks_) {
    if (look.load != nullptr) look.load->GiveUp();
    if (look.challenge != nullptr) look.challenge->Expire();
    buffers.push_back(std::move(look.buffer));
  }
  looks_.clear();
  if (arrival_ != nullptr) buffers.push_back(std::move(arrival_->buffer));
  for (auto& [number, buffer] : loans_) buffers.push_back(std::move(buffer));
  service_.TakeBack(std::move(buffers));
}

void ContentService::Connection::Run() {
  absl::Status served;
  while (served.ok() && !alarm_->stopping) {
    const bool receives = MayReceive();
    pollfd watched[] = {{receives ? socket_.get() : -1, POLLIN, 0},
                        {alarm_->event.get(), POLLIN, 0}};
    poll(watched, 2, receives ? PatienceMilliseconds() : kPauseMilliseconds);
    if (watched[1].revents != 0) ClearEvent(alarm_->event.get());
    if (watched[0].revents != 0) served = Receive();
    if (served.ok()) served = GoOn();
    if (std::exchange(trims_, false)) service_.Trim();
  }
  // The end of the socket is the executor's own.
  if (served.ok() || absl::IsOutOfRange(served)) return;
  service_.options_.refuse(executor_, served);
}

int ContentService::Connection::PatienceMilliseconds() const {
  if (looks_.empty()) return -1;
  const absl::Duration now = service_.clock_->Monotonic();
  absl::Duration least = absl::Milliseconds(kTickMilliseconds);
  for (const auto& [id, look] : looks_) {
    if (look.challenge != nullptr && look.challenge->settled()) {
      least = std::min(least, look.earliest - now);
    }
  }
  // Rounds up, so that the time has come when the wait ends.
  return 1 + static_cast<int>(absl::ToInt64Milliseconds(
                 std::max(least, absl::ZeroDuration())));
}

bool ContentService::Connection::MayReceive() {
  const absl::Duration now = service_.clock_->Monotonic();
  const absl::Duration passed = now - std::exchange(last_round_, now);
  messages_ = std::max(
      0.0, messages_ - kMessagesPerSecond * absl::ToDoubleSeconds(passed));
  return messages_ < static_cast<double>(service_.options_.burst);
}

absl::Status ContentService::Connection::Receive() {
  for (int i = 0; i < kMaxPackets &&
                  messages_ < static_cast<double>(service_.options_.burst) &&
                  !alarm_->stopping;
       ++i) {
    v1::ContentRequest request;
    const absl::Status received =
        ReceivePacket(socket_.get(), &request, /*descriptor=*/nullptr, &room_);
    if (absl::IsUnavailable(received)) break;
    DJINN_RETURN_IF_ERROR(received);
    if (request.piece().size() < kPieceBytes) ++messages_;
    DJINN_RETURN_IF_ERROR(Handle(request));
  }
  return absl::OkStatus();
}

absl::Status ContentService::Connection::Handle(
    const v1::ContentRequest& request) {
  const uint64_t id = request.id();
  switch (request.request_case()) {
    case v1::ContentRequest::kFind:
      return Find(id, request.find());
    case v1::ContentRequest::kProof:
      return Prove(id, request.proof());
    case v1::ContentRequest::kGiveUp: {
      const auto look = looks_.find(id);
      // An answer may be on its way.
      if (look == looks_.end()) return absl::OkStatus();
      look->second.given_up = true;
      look->second.earliest = absl::ZeroDuration();
      if (look->second.load != nullptr) look->second.load->GiveUp();
      if (look->second.challenge != nullptr) look->second.challenge->Expire();
      return absl::OkStatus();
    }
    case v1::ContentRequest::kOffer:
      return Offer(id, request.offer());
    case v1::ContentRequest::kPiece:
      return AddPiece(id, request.piece());
    case v1::ContentRequest::kGiveBack: {
      const auto loan = loans_.find(request.give_back());
      if (loan == loans_.end()) return Bad("gives back what it was not lent");
      bytes_ -= loan->second->size_bytes();
      const std::weak_ptr<Buffer> buffer = loan->second;
      loans_.erase(loan);
      // The cache alone has it now.
      if (buffer.use_count() == 1) trims_ = true;
      return absl::OkStatus();
    }
    case v1::ContentRequest::REQUEST_NOT_SET:
      break;
  }
  return Bad("an empty one");
}

absl::Status ContentService::Connection::Answer(const v1::ContentAnswer& answer,
                                                const Descriptor& descriptor) {
  // The socket has room for the answers to all looks.
  const absl::Status sent = SendPacket(socket_.get(), answer, descriptor);
  return absl::IsUnavailable(sent) ? Bad("does not read the answers") : sent;
}

void ContentService::Connection::LogFailure(absl::string_view what,
                                            const absl::Status& why) {
  const absl::Duration now = service_.clock_->Monotonic();
  if (now < next_log_) return;
  next_log_ = now + kLogPause;
  log::Error(what, {{"executor", executor_}, {"error", why}});
}

absl::Status ContentService::Connection::Lend(v1::ContentAnswer answer,
                                              std::shared_ptr<Buffer> buffer) {
  if (buffer != nullptr) {
    const absl::StatusOr<Descriptor> descriptor = LentMemory::Lend(*buffer);
    absl::Status sent = descriptor.status();
    if (descriptor.ok()) {
      answer.set_lent(++last_loan_);
      sent = Answer(answer, *descriptor);
    }
    if (sent.ok()) {
      bytes_ += buffer->size_bytes();
      loans_[last_loan_] = std::move(buffer);
    }
    // The executor is gone, or does not read.
    if (sent.ok() || absl::IsOutOfRange(sent) ||
        absl::IsInvalidArgument(sent)) {
      return sent;
    }
    // The system bounds descriptors, those on their way included.
    LogFailure("a content is not lent", sent);
    buffer = nullptr;
    trims_ = true;
  }
  answer.set_absent(true);
  return Answer(answer);
}

absl::Status ContentService::Connection::Find(
    uint64_t id, const v1::ContentDescription& name) {
  if (id <= last_id_) return Bad("an id that does not rise");
  last_id_ = id;
  if (looks_.size() >= kMaxLooks) return Bad("too many looks");
  const uint64_t size = name.size_bytes();
  Look look;
  look.name = name;
  look.tenant = service_.options_.tenant_of(executor_);
  // Whether there is room does not depend on what is here.
  const uint64_t most = service_.options_.executor_bytes;
  if (look.tenant.empty() || size == 0 || size > most || bytes_ > most - size ||
      loans_.size() + looks_.size() >= service_.max_loans_) {
    return Lend(AnswerTo(id), nullptr);
  }
  std::shared_ptr<Buffer> own =
      service_.cache_.Find(look.tenant, HashOf(name), size);
  if (own != nullptr) return Lend(AnswerTo(id), std::move(own));
  if (DiskStore* const disk = service_.disk_.get();
      disk != nullptr && disk->Has(look.tenant, HashOf(name), size)) {
    absl::StatusOr<std::shared_ptr<Buffer>> buffer =
        service_.memory_.Allocate(size);
    if (buffer.ok()) {
      look.buffer = *buffer;
      look.load = disk->Load({.tenant = look.tenant,
                              .hash = HashOf(name),
                              .buffer = *std::move(buffer),
                              .settled = [alarm = alarm_] { alarm->Raise(); }});
    }
    if (look.load != nullptr) {
      bytes_ += size;
      looks_[id] = std::move(look);
      return absl::OkStatus();
    }
  }
  if (!AskForProof(&look)) return Lend(AnswerTo(id), nullptr);
  bytes_ += size;
  v1::ContentAnswer answer = AnswerTo(id);
  answer.set_prove(look.challenge->key());
  looks_[id] = std::move(look);
  return Answer(answer);
}

bool ContentService::Connection::AskForProof(Look* look) {
  ContentCache& cache = service_.cache_;
  if (!look->name.provable() || !cache.Shares(look->tenant)) return false;
  const uint64_t size = look->name.size_bytes();
  look->challenge = service_.proofs_.Issue(
      look->tenant, size,
      cache.FindShared(look->tenant, HashOf(look->name), size),
      [alarm = alarm_] { alarm->Raise(); }, [](absl::Duration) {});
  const absl::Duration now = service_.clock_->Monotonic();
  look->earliest = now + ContentProofs::TimeOf(size);
  look->deadline = now + service_.options_.answer_timeout +
                   absl::Seconds(static_cast<double>(size) / kBytesPerSecond);
  return look->challenge != nullptr;
}

absl::Status ContentService::Connection::Prove(uint64_t id,
                                               const std::string& mac) {
  if (mac.size() != kContentMacBytes) return Bad("a proof of another size");
  const auto look = looks_.find(id);
  if (look == looks_.end()) {
    // The deadline may have passed.
    return id <= last_id_ ? absl::OkStatus() : Bad("a proof of nothing");
  }
  if (look->second.challenge == nullptr) return Bad("a proof of nothing");
  look->second.challenge->Answer(mac);
  return absl::OkStatus();
}

absl::Status ContentService::Connection::GoOn() {
  if (arrival_ != nullptr && alarm_->written.exchange(false)) {
    DJINN_RETURN_IF_ERROR(EndArrival());
  }
  const absl::Duration now = service_.clock_->Monotonic();
  absl::Status answered;
  for (auto at = looks_.begin(); at != looks_.end() && answered.ok();) {
    const auto look = at++;
    if (look->second.challenge != nullptr && now > look->second.deadline) {
      look->second.challenge->Expire();
    }
    if (Settle(look->first, &look->second, &answered)) looks_.erase(look);
  }
  return answered;
}

bool ContentService::Connection::Settle(uint64_t id, Look* look,
                                        absl::Status* answered) {
  const uint64_t size = look->name.size_bytes();
  v1::ContentAnswer answer = AnswerTo(id);
  ContentCache& cache = service_.cache_;
  std::shared_ptr<Buffer> found;
  if (look->load != nullptr) {
    // A load that was given up counts until the disk's reader releases it.
    if (!look->load->settled() || !IsSoleOwner(look->buffer)) return false;
    const bool ok =
        look->load->ok() && LentMemory::Seal(look->buffer.get()).ok();
    look->load = nullptr;
    found = std::exchange(look->buffer, nullptr);
    if (!ok) {
      found = nullptr;
      // The disk did not have the content after all; another tenant may.
      if (!look->given_up && AskForProof(look)) {
        answer.set_prove(look->challenge->key());
        *answered = Answer(answer);
        return false;
      }
    } else if (cache.Shares(look->tenant)) {
      found = cache.Insert(look->tenant, HashOf(look->name), std::move(found),
                           absl::ZeroDuration());
    }
  } else {
    // Neither the time of the answer nor what it charges depends on whether
    // there is a content.
    if (!look->challenge->settled() ||
        service_.clock_->Monotonic() < look->earliest) {
      return false;
    }
    // Its candidate is idle again.
    trims_ = true;
    found = look->challenge->Take();
    *answer.mutable_proof_time() = ToProtoDuration(ContentProofs::TimeOf(size));
    if (found != nullptr) {
      service_.proofs_.CountProven();
      cache.Adopt(look->tenant, HashOf(look->name), found);
      if (service_.disk_ != nullptr) {
        service_.disk_->Keep(look->tenant, HashOf(look->name), size,
                             /*found=*/true);
      }
    }
  }
  bytes_ -= size;
  *answered = Lend(std::move(answer), std::move(found));
  return true;
}

absl::Status ContentService::Connection::Offer(
    uint64_t id, const v1::ContentDescription& name) {
  if (id <= last_id_) return Bad("an id that does not rise");
  last_id_ = id;
  if (arrival_ != nullptr) return Bad("an offer while it sends a content");
  const uint64_t size = name.size_bytes();
  const uint64_t most = service_.options_.executor_bytes;
  const ContentHash hash = HashOf(name);
  const std::string tenant = service_.options_.tenant_of(executor_);
  const bool fits =
      !tenant.empty() && size > 0 && size <= most && bytes_ <= most - size;
  std::shared_ptr<Buffer> buffer;
  if (fits && Wants(tenant, hash, size)) {
    absl::StatusOr<std::shared_ptr<Buffer>> made =
        service_.memory_.Allocate(size);
    if (made.ok()) {
      buffer = *std::move(made);
    } else {
      LogFailure("a content is not kept", made.status());
    }
  }
  v1::ContentAnswer answer = AnswerTo(id);
  if (buffer == nullptr) {
    answer.set_absent(true);
    return Answer(answer);
  }
  bytes_ += size;
  arrival_ = std::make_unique<Arrival>();
  arrival_->id = id;
  arrival_->hash = hash;
  arrival_->size = size;
  arrival_->tenant = tenant;
  arrival_->buffer = std::move(buffer);
  answer.set_send(true);
  return Answer(answer);
}

bool ContentService::Connection::Wants(const std::string& tenant,
                                       const ContentHash& hash, uint64_t size) {
  DiskStore* const disk = service_.disk_.get();
  ContentCache& cache = service_.cache_;
  const bool shares =
      cache.Shares(tenant) && size <= service_.options_.kept_bytes;
  const bool on_disk = disk != nullptr && disk->Has(tenant, hash, size);
  // Counts a use.
  if (on_disk) disk->Keep(tenant, hash, size, /*found=*/true);
  if (cache.Peek(tenant, hash, size) != nullptr) return false;
  // Other tenants get contents from memory alone.
  return shares || (disk != nullptr && !on_disk && disk->Wants(size));
}

absl::Status ContentService::Connection::AddPiece(uint64_t id,
                                                  absl::string_view bytes) {
  if (arrival_ == nullptr || arrival_->id != id || bytes.empty() ||
      bytes.size() > arrival_->size - arrival_->here) {
    return Bad("bytes that nobody asked for");
  }
  if (arrival_->failure.ok()) {
    arrival_->failure =
        service_.memory_.Write(arrival_->buffer.get(), arrival_->here, bytes);
  }
  arrival_->hasher.Add(bytes);
  arrival_->here += bytes.size();
  return arrival_->here < arrival_->size ? absl::OkStatus() : Complete();
}

absl::Status ContentService::Connection::Complete() {
  if (!(arrival_->hasher.Hash() == arrival_->hash)) {
    return Bad("bytes of another hash");
  }
  if (arrival_->failure.ok()) {
    arrival_->failure = LentMemory::Seal(arrival_->buffer.get());
  }
  if (!arrival_->failure.ok()) {
    LogFailure("a content is not kept", arrival_->failure);
    return EndArrival();
  }
  // The arrival's reference keeps the content in the cache until it is on disk.
  arrival_->buffer =
      service_.cache_.Insert(arrival_->tenant, arrival_->hash,
                             std::move(arrival_->buffer), absl::ZeroDuration());
  alarm_->written = false;
  std::shared_ptr<void> pin(nullptr, [alarm = alarm_](void*) {
    alarm->written = true;
    alarm->Raise();
  });
  if (service_.disk_ != nullptr) {
    service_.disk_->Keep(arrival_->tenant, arrival_->hash, arrival_->size,
                         /*found=*/true, std::move(pin));
  }
  return absl::OkStatus();
}

absl::Status ContentService::Connection::EndArrival() {
  v1::ContentAnswer answer = AnswerTo(arrival_->id);
  answer.set_kept(true);
  bytes_ -= arrival_->size;
  arrival_ = nullptr;
  service_.Trim();
  service_.options_.changed();
  return Answer(answer);
}

}  // namespace djinn::worker
