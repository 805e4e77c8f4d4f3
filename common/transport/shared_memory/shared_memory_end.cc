#include "common/transport/shared_memory/shared_memory_end.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "google/rpc/status.pb.h"

namespace djinn {
namespace {

// Type of the detail that holds the text of a closing status.
constexpr char kText[] = "text";
// Size of the parts of long messages.
constexpr size_t kMaxFragment = 64 << 10;
// Capacity up to which the buffer for received messages is kept.
constexpr size_t kKeptCapacity = 1 << 20;
// Messages that are received before chunks and writers have their turn.
constexpr int kBatch = 32;

// Encodes the status for one frame. The text and the payloads have at most
// `max_part` bytes each.
std::string Encode(const absl::Status& status, size_t max_part) {
  google::rpc::Status encoded;
  encoded.set_code(static_cast<int>(status.code()));
  // The text is encoded as bytes, because operators' texts need not be UTF-8,
  // and a cut text may end within a character.
  google::protobuf::Any* const text = encoded.add_details();
  text->set_type_url(kText);
  text->set_value(std::string(status.message().substr(0, max_part)));
  size_t payload_bytes = 0;
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& value) {
    payload_bytes += url.size() + value.size();
    if (payload_bytes > max_part) return;
    google::protobuf::Any* const any = encoded.add_details();
    any->set_type_url(std::string(url));
    any->set_value(std::string(value));
  });
  return encoded.SerializeAsString();
}

absl::Status Decode(absl::string_view bytes) {
  google::rpc::Status encoded;
  if (!encoded.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return MakeError(absl::StatusCode::kDataLoss, "RING_CORRUPT",
                     "the peer ended with no status");
  }
  std::string text;
  for (const google::protobuf::Any& any : encoded.details()) {
    if (any.type_url() == kText) text = any.value();
  }
  absl::Status status(static_cast<absl::StatusCode>(encoded.code()), text);
  for (const google::protobuf::Any& any : encoded.details()) {
    if (any.type_url() == kText) continue;
    status.SetPayload(any.type_url(), absl::Cord(any.value()));
  }
  return status;
}

// Returns whether the peer hung up. Also reads the bytes that woke this side.
bool HasHungUp(int socket) {
  char bytes[64];
  const ssize_t count = recv(socket, bytes, sizeof(bytes), MSG_DONTWAIT);
  return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
}

absl::Duration Now() { return Clock::Real()->Monotonic(); }

SharedSide OtherSide(SharedSide side) {
  return side == SharedSide::kClient ? SharedSide::kWorker
                                     : SharedSide::kClient;
}

}  // namespace

SharedMemoryEnd::SharedMemoryEnd(SharedSide side, Options options,
                                 Descriptor wake)
    : side_(side), options_(options), wake_(std::move(wake)) {}

SharedMemoryEnd::SharedMemoryEnd(SharedSide side, Options options,
                                 SharedConnection connection)
    : SharedMemoryEnd(side, options, std::move(connection.wake)) {
  MutexLock lock(&mu_);
  SetConnectionLocked(std::move(connection));
}

SharedMemoryEnd::~SharedMemoryEnd() {
  Close(absl::OkStatus());
  if (thread_.joinable()) thread_.join();
}

void SharedMemoryEnd::SetConnectionLocked(SharedConnection connection) {
  connection_ = std::move(connection);
  region_ = &connection_->region;
  socket_ = connection_->socket.get();
  const SharedRegion::Ring control = region_->control(side_);
  control_.ring.emplace(control.state, control.data, control.bytes);
  const SharedRegion::Ring bulk = region_->bulk(side_);
  bulk_.ring.emplace(bulk.state, bulk.data, bulk.bytes);
  const SharedRegion::Ring control_in = region_->control(OtherSide(side_));
  control_in_.emplace(control_in.state, control_in.data, control_in.bytes);
  const SharedRegion::Ring bulk_in = region_->bulk(OtherSide(side_));
  bulk_in_.emplace(bulk_in.state, bulk_in.data, bulk_in.bytes);
}

void SharedMemoryEnd::Start(OpenFunction open, Handler* handler) {
  open_ = std::move(open);
  handler_ = handler;
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    handler_->OnClosed(absl::UnavailableError(
        absl::StrCat("no thread for shared memory: ", error.what())));
  }
}

bool SharedMemoryEnd::Send(absl::string_view message) {
  MutexLock lock(&mu_);
  if (goodbye_.has_value()) return true;
  AddLocked({FrameKind::kMessage, 0, 0, {message, nullptr}}, /*owned=*/false,
            &control_);
  WakePeerLocked();
  control_.stalled |= control_.queue.size() >= options_.queue_limit;
  return !control_.stalled;
}

bool SharedMemoryEnd::SendBulk(uint64_t transfer_id, uint64_t offset,
                               SharedBytes payload) {
  MutexLock lock(&mu_);
  if (goodbye_.has_value()) return true;
  AddLocked({FrameKind::kChunk, transfer_id, offset, std::move(payload)},
            /*owned=*/true, &bulk_);
  WakePeerLocked();
  bulk_.stalled |= bulk_.queue.size() >= options_.bulk_queue_limit;
  if (++burst_ >= options_.bulk_burst && !bulk_.stalled) {
    bulk_.stalled = true;
    Reclaim();
  }
  return !bulk_.stalled;
}

absl::Status SharedMemoryEnd::SendAndWait(absl::string_view message) {
  MutexLock lock(&mu_);
  if (goodbye_.has_value()) return absl::CancelledError("the stream is closed");
  const uint64_t ticket =
      AddLocked({FrameKind::kMessage, 0, 0, {message, nullptr}}, /*owned=*/true,
                &control_);
  WakePeerLocked();
  return WaitUntilGone(ticket, &control_);
}

absl::Status SharedMemoryEnd::SendBulkAndWait(uint64_t transfer_id,
                                              uint64_t offset,
                                              SharedBytes payload) {
  MutexLock lock(&mu_);
  if (goodbye_.has_value()) return absl::CancelledError("the stream is closed");
  const uint64_t ticket =
      AddLocked({FrameKind::kChunk, transfer_id, offset, std::move(payload)},
                /*owned=*/true, &bulk_);
  WakePeerLocked();
  return WaitUntilGone(ticket, &bulk_);
}

absl::Status SharedMemoryEnd::WaitUntilGone(uint64_t ticket, Outgoing* lane) {
  uint64_t gone = lane->gone;
  absl::Duration patience = Now() + options_.stuck_write;
  while (lane->gone < ticket && !ended_) {
    const bool late =
        room_.WaitWithTimeout(&mu_, patience - Now()) && Now() >= patience;
    if (lane->gone != gone) {
      gone = lane->gone;
      patience = Now() + options_.stuck_write;
    } else if (late) {
      CloseLocked(absl::UnavailableError(
          absl::StrCat("the peer took nothing for ",
                       absl::FormatDuration(options_.stuck_write))));
      patience = Now() + options_.stuck_write;
    }
  }
  // Items of a queue that was dropped count as gone.
  if (ended_ || (goodbye_.has_value() && !goodbye_->ok())) {
    return absl::CancelledError("the stream is closed");
  }
  return absl::OkStatus();
}

uint64_t SharedMemoryEnd::AddLocked(Pending pending, bool owned,
                                    Outgoing* lane) {
  lane->queue.push_back(std::move(pending));
  const uint64_t ticket = ++lane->added;
  WriteLocked(lane);
  // The thread writes the rest. While the role has no holder, no thread would
  // notice that there is room. A holder checks for room itself.
  if (!lane->queue.empty()) role_.Reclaim();
  if (!owned && lane->gone < ticket) {
    // The caller's bytes do not outlive the call.
    SharedBytes* const payload = &lane->queue.back().payload;
    auto copy = std::make_shared<const std::string>(payload->bytes);
    payload->bytes = *copy;
    payload->owner = std::move(copy);
  }
  return ticket;
}

void SharedMemoryEnd::WriteLocked(Outgoing* lane) {
  if (!lane->ring.has_value()) return;
  while (!lane->queue.empty()) {
    Pending& pending = lane->queue.front();
    const absl::string_view rest =
        pending.payload.bytes.substr(pending.written);
    const size_t part =
        pending.kind == FrameKind::kMessage
            ? std::min({rest.size(), kMaxFragment, lane->ring->max_payload()})
            : rest.size();
    const absl::StatusOr<bool> fits = lane->ring->FitsOrAwait(part);
    if (!fits.ok()) return CloseLocked(fits.status());
    if (!*fits) return;
    FrameHeader header;
    header.kind = pending.kind;
    header.more = part < rest.size();
    header.transfer_id = pending.transfer_id;
    header.offset = pending.offset;
    lane->ring->Write(header, rest.substr(0, part));
    wrote_ = true;
    pending.written += part;
    if (header.more) continue;
    lane->queue.pop_front();
    ++lane->gone;
    room_.SignalAll();
  }
}

void SharedMemoryEnd::WriteAllLocked() {
  WriteLocked(&bulk_);
  WriteLocked(&control_);
  if (!goodbye_.has_value() || said_goodbye_ || !control_.ring.has_value() ||
      !control_.queue.empty() || !bulk_.queue.empty()) {
    return;
  }
  // The peer receives all chunks that were written before the status.
  const std::string encoded =
      Encode(*goodbye_, control_.ring->max_payload() / 3);
  const absl::StatusOr<bool> fits = control_.ring->FitsOrAwait(encoded.size());
  if (!fits.ok()) gone_ = true;
  if (!fits.ok() || !*fits) return;
  FrameHeader header;
  header.kind = FrameKind::kEnd;
  control_.ring->Write(header, encoded);
  wrote_ = said_goodbye_ = true;
}

void SharedMemoryEnd::WakePeerLocked() {
  if (!wrote_) return;
  wrote_ = false;
  std::atomic<uint32_t>* const sleep = region_->sleep(OtherSide(side_));
  if (sleep->load() == kAwake) return;
  switch (sleep->exchange(kAwake)) {
    case kAwake:
      return;
    case kAsleepAtWord:
      return WakeAtWord(sleep);
    default: {
      // A full socket also wakes the peer.
      [[maybe_unused]] const ssize_t sent =
          send(socket_, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
  }
}

void SharedMemoryEnd::Close(absl::Status status) {
  MutexLock lock(&mu_);
  CloseLocked(std::move(status));
}

void SharedMemoryEnd::CloseLocked(absl::Status status) {
  if (goodbye_.has_value()) return;
  if (!status.ok()) DropQueuesLocked();
  goodbye_ = std::move(status);
  give_up_ = Now() + options_.close_timeout;
  WriteAllLocked();
  WakePeerLocked();
  role_.End();
  Reclaim();
}

void SharedMemoryEnd::DropQueuesLocked() {
  for (Outgoing* const lane : {&control_, &bulk_}) {
    lane->queue.clear();
    lane->gone = lane->added;
  }
  room_.SignalAll();
}

bool SharedMemoryEnd::OverLocked() const {
  return gone_ || (said_goodbye_ && peers_goodbye_.has_value());
}

void SharedMemoryEnd::Run() {
  const absl::Status established = Establish();
  {
    MutexLock lock(&mu_);
    broken_ = established;
  }
  if (!established.ok()) role_.End();
  while (!Over()) {
    const bool any = Advance();
    // Lends the role if something came and the thread is not needed. Goes on
    // when the thread has the role.
    if (any && !ThreadNeeded()) {
      role_.Lend();
    } else {
      if (any) role_.Wake();
      role_.Keep();
    }
    if (!any) SleepAtSocket();
  }
  role_.End();
  absl::Status end = absl::UnavailableError(side_ == SharedSide::kClient
                                                ? "the worker went away"
                                                : "the client went away");
  // Only the end of its process closes a client's socket without a goodbye.
  if (side_ == SharedSide::kWorker && hung_up_) {
    end = MakeError(absl::StatusCode::kUnavailable, "CLIENT_GONE",
                    "the client's process ended");
  }
  {
    MutexLock lock(&mu_);
    ended_ = true;
    if (!broken_.ok()) {
      end = broken_;
    } else if (peers_goodbye_.has_value() && !peers_goodbye_->ok()) {
      end = *peers_goodbye_;
    } else if (goodbye_.has_value() && !goodbye_->ok()) {
      end = *goodbye_;
    } else if (peers_goodbye_.has_value()) {
      end = absl::OkStatus();
    }
    if (!goodbye_.has_value()) goodbye_ = end;
    DropQueuesLocked();
  }
  handler_->OnClosed(std::move(end));
}

bool SharedMemoryEnd::ThreadNeeded() {
  if (role_.reclaimed()) return true;
  // The thread writes queued data when there is room.
  MutexLock lock(&mu_);
  return !broken_.ok() || goodbye_.has_value() || OverLocked() ||
         !control_.queue.empty() || !bulk_.queue.empty();
}

bool SharedMemoryEnd::Lead(absl::FunctionRef<bool()> done,
                           absl::Duration patience) {
  const absl::Duration until = Now() + patience;
  switch (role_.Take(done, patience)) {
    case ReceiverRole::Turn::kRefused:
      return false;
    case ReceiverRole::Turn::kOver:
      return true;
    case ReceiverRole::Turn::kTaken:
      break;
  }
  bool needed = false;
  spin_.Begin();
  for (uint64_t wakes = role_.wakes(); !needed && !done();
       wakes = role_.wakes()) {
    const bool any = Advance();
    needed = ThreadNeeded();
    if (any) role_.Wake();
    if (any || needed) continue;
    const absl::Duration now = Now();
    if (spin_.Nothing(now)) {
      SpinWait::Relax();
      continue;
    }
    if (now < until) {
      SleepAtWord(wakes, until - now);
      continue;
    }
    hung_up_ = HasHungUp(socket_);
    break;
  }
  spin_.End(Now());
  needed = ThreadNeeded() || hung_up_;
  if (needed) role_.Reclaim();
  role_.Leave();
  return !needed;
}

void SharedMemoryEnd::Wake() {
  if (role_.Wake() == ReceiverRole::Holder::kLeader) WakeOwn();
}

void SharedMemoryEnd::WakeOwn() {
  // Only leaders sleep at the word. The exchange fails if the leader has
  // left meanwhile.
  std::atomic<uint32_t>* const sleep = region_->sleep(side_);
  uint32_t asleep = kAsleepAtWord;
  if (sleep->compare_exchange_strong(asleep, kAwake)) WakeAtWord(sleep);
}

void SharedMemoryEnd::Reclaim() {
  switch (role_.Reclaim()) {
    case ReceiverRole::Holder::kThread:
      return RaiseEvent(wake_.get());
    case ReceiverRole::Holder::kLeader:
      return WakeOwn();
    case ReceiverRole::Holder::kNobody:
      return;
  }
}

bool SharedMemoryEnd::Over() {
  MutexLock lock(&mu_);
  // A peer that keeps sending does not extend the time.
  if (Now() >= give_up_) gone_ = true;
  return !broken_.ok() || OverLocked();
}

bool SharedMemoryEnd::Advance() {
  const absl::StatusOr<bool> received = Receive();
  Flush();
  if (received.ok()) return *received;
  MutexLock lock(&mu_);
  broken_ = received.status();
  CloseLocked(broken_);
  return true;
}

absl::Status SharedMemoryEnd::Establish() {
  if (open_ == nullptr) return absl::OkStatus();
  DJINN_ASSIGN_OR_RETURN(SharedConnection connection, open_(wake_.get()));
  MutexLock lock(&mu_);
  SetConnectionLocked(std::move(connection));
  WriteAllLocked();
  WakePeerLocked();
  return absl::OkStatus();
}

absl::StatusOr<bool> SharedMemoryEnd::Receive() {
  bool any = false;
  FrameRingReader::Frame frame;
  for (int i = 0; i < kBatch; ++i) {
    DJINN_ASSIGN_OR_RETURN(const bool here, control_in_->Peek(&frame));
    if (!here) break;
    any = true;
    const absl::Status taken = TakeFrame(frame);
    PopAndTell(&*control_in_);
    DJINN_RETURN_IF_ERROR(taken);
  }
  DJINN_ASSIGN_OR_RETURN(const bool chunk, ReceiveChunk());
  return any || chunk;
}

absl::Status SharedMemoryEnd::TakeFrame(const FrameRingReader::Frame& frame) {
  if (frame.header.kind == FrameKind::kChunk) {
    return MakeError(absl::StatusCode::kDataLoss, "RING_CORRUPT",
                     "a chunk among the messages");
  }
  // A message that its sender gave up halfway has no end.
  if (frame.header.kind == FrameKind::kEnd) message_.clear();
  if (message_.size() + frame.header.payload_bytes >
      options_.max_message_bytes) {
    return MakeError(absl::StatusCode::kResourceExhausted, "MESSAGE_TOO_LARGE",
                     absl::StrCat("a message of more than ",
                                  options_.max_message_bytes, " bytes"));
  }
  // The message is copied before it is parsed, because the peer may change the
  // ring.
  for (const absl::string_view piece : frame.payload()) {
    message_.append(piece.data(), piece.size());
  }
  if (frame.header.more != 0) return absl::OkStatus();
  absl::Status taken;
  if (frame.header.kind == FrameKind::kMessage) {
    taken = handler_->OnBytes(message_);
  } else {
    // The peer wrote its chunks before the closing status.
    for (const uint64_t end = bulk_in_->written(); bulk_in_->read() < end;) {
      DJINN_ASSIGN_OR_RETURN(const bool more, ReceiveChunk());
      if (!more) break;
    }
    MutexLock lock(&mu_);
    peers_goodbye_ = Decode(message_);
    if (!peers_goodbye_->ok()) DropQueuesLocked();
    CloseLocked(absl::OkStatus());
  }
  if (message_.capacity() > kKeptCapacity) {
    std::string().swap(message_);
  } else {
    message_.clear();
  }
  return taken;
}

absl::StatusOr<bool> SharedMemoryEnd::ReceiveChunk() {
  FrameRingReader::Frame frame;
  DJINN_ASSIGN_OR_RETURN(const bool here, bulk_in_->Peek(&frame));
  if (!here) return false;
  if (frame.header.kind != FrameKind::kChunk || frame.header.more != 0) {
    return MakeError(absl::StatusCode::kDataLoss, "RING_CORRUPT",
                     "a message among the chunks");
  }
  handler_->OnBulk(frame.header.transfer_id, frame.header.offset,
                   frame.payload());
  PopAndTell(&*bulk_in_);
  return true;
}

void SharedMemoryEnd::PopAndTell(FrameRingReader* ring) {
  if (!ring->Pop()) return;
  MutexLock lock(&mu_);
  wrote_ = true;  // the peer waits for room
  WakePeerLocked();
}

void SharedMemoryEnd::Flush() {
  bool room = false, bulk_room = false;
  {
    MutexLock lock(&mu_);
    WriteAllLocked();
    WakePeerLocked();
    burst_ = 0;
    if (control_.stalled && control_.queue.size() <= options_.queue_limit / 2) {
      control_.stalled = false;
      room = true;
    }
    if (bulk_.stalled && bulk_.queue.size() <= options_.bulk_queue_limit / 2) {
      bulk_.stalled = false;
      bulk_room = true;
    }
  }
  if (room) handler_->OnRoom();
  if (bulk_room) handler_->OnBulkRoom();
}

bool SharedMemoryEnd::GoToSleep(SharedSleep how) {
  region_->sleep(side_)->store(how);
  const bool came = !control_in_->empty() || !bulk_in_->empty();
  // Writes what fits into room that the peer made before the word was set.
  MutexLock lock(&mu_);
  WriteAllLocked();
  const bool wrote = wrote_;
  WakePeerLocked();
  return !came && !wrote;
}

void SharedMemoryEnd::SleepAtSocket() {
  absl::Duration patience;
  {
    MutexLock lock(&mu_);
    const absl::Duration now = Now();
    if (hung_up_ || now >= give_up_) {
      gone_ = true;
      return;
    }
    patience = give_up_ - now;
  }
  if (GoToSleep(kAsleepAtSocket)) {
    int timeout = -1;
    if (patience != absl::InfiniteDuration()) {
      timeout = static_cast<int>(absl::ToInt64Milliseconds(patience)) + 1;
    }
    pollfd waiting[] = {{socket_, POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    poll(waiting, 2, timeout);
    if (waiting[1].revents != 0) ClearEvent(wake_.get());
    if (waiting[0].revents != 0) hung_up_ = HasHungUp(socket_);
  }
  region_->sleep(side_)->store(kAwake);
}

void SharedMemoryEnd::SleepAtWord(uint64_t wakes, absl::Duration patience) {
  // A wake that came before the sleep word was set did not wake this thread,
  // so the number of wakes is checked after setting it.
  if (GoToSleep(kAsleepAtWord) && role_.wakes() == wakes && !ThreadNeeded()) {
    WaitAtWord(region_->sleep(side_), kAsleepAtWord, patience);
  }
  region_->sleep(side_)->store(kAwake);
}

}  // namespace djinn
