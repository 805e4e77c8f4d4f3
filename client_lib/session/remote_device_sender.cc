// The sender thread: asks for the lease, turns work into messages, numbers and
// sends them, frees what is dead.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/session/remote_device.h"
#include "common/error.h"
#include "common/log/log.h"
#include "common/net/protocol_version.h"
#include "common/srg/proto_codec.h"
#include "common/status_macros.h"

namespace djinn {
namespace {

// Uploads named in a lease request, and storages in a Free message, at most.
constexpr size_t kMaxHints = 64;
constexpr size_t kMaxFreesPerMessage = 4096;

absl::Status CheckHello(const v1::WorkerHello& hello, const v1::Lease& lease) {
  if (hello.incarnation() != lease.worker_incarnation()) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "WRONG_INCARNATION",
                     "the worker has restarted");
  }
  if (hello.worker_id() != lease.worker_id()) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "WRONG_WORKER",
                     absl::StrCat("the lease is for worker ", lease.worker_id(),
                                  "; worker ", hello.worker_id(),
                                  " answered at ", lease.worker_address()));
  }
  if (hello.protocol_version() < kMinProtocolVersion ||
      hello.protocol_version() > kMaxProtocolVersion) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, "PROTOCOL_WINDOW",
        absl::StrCat("the worker chose protocol version ",
                     hello.protocol_version(), "; this side speaks [",
                     kMinProtocolVersion, ", ", kMaxProtocolVersion, "]"));
  }
  const v1::SessionLimits& limits = hello.limits();
  if (limits.max_outstanding() == 0 || limits.max_outstanding_bytes() == 0 ||
      limits.max_structures() == 0 ||
      limits.inline_bytes() < RemoteDevice::kAlwaysInlineBytes) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, "LIMITS_TOO_LOW",
        absl::StrCat("the session's limits cannot be worked with: ",
                     limits.ShortDebugString()));
  }
  return absl::OkStatus();
}

}  // namespace

void RemoteDevice::SenderLoop() {
  for (;;) {
    wakeup_.Wait();
    bool free_now = free_due_.exchange(false, std::memory_order_relaxed);
    for (;;) {
      Work work;
      const Next next = TakeNext(&work);
      if (next == Next::kNothing) break;
      switch (next) {
        case Next::kConnect:
          Connect();
          break;
        case Next::kWork:
          Process(std::move(work));
          break;
        case Next::kDrop:
          DropEverything();
          free_now = false;
          break;
        case Next::kStop:
          DropEverything();
          return;
        case Next::kNothing:
          break;
      }
    }
    dead_.Collect(&pending_free_);
    bool closing;
    {
      MutexLock lock(&mu_);
      // Work sealed by BeginClose() after TakeNext() looked is not drained: its
      // wake-up is still to come. Once empty the queue stays so.
      closing = closing_ && NothingDue();
    }
    if (free_now || closing) SendFrees();
    if (closing) {
      MutexLock lock(&mu_);
      drained_ = true;
      progress_changed_.SignalAll();
    }
  }
}

bool RemoteDevice::NothingDue() const {
  return queue_.empty() || (!connected_ && !lease_due_);
}

RemoteDevice::Next RemoteDevice::TakeNext(Work* work) {
  MutexLock lock(&mu_);
  if (stopped_) return Next::kStop;
  if (!failure_.ok()) {
    return queue_.empty() && !recorder_.HasOpenSegments() ? Next::kNothing
                                                          : Next::kDrop;
  }
  if (!connected_) return lease_due_ ? Next::kConnect : Next::kNothing;
  if (queue_.empty()) return Next::kNothing;
  *work = std::move(queue_.front());
  queue_.pop_front();
  queued_bytes_ -= work->footprint_bytes;
  processing_ = true;
  return Next::kWork;
}

void RemoteDevice::Connect() {
  const absl::Status status = TryConnect();
  if (!status.ok()) Fail(status);
}

absl::Status RemoteDevice::TryConnect() {
  v1::LeaseRequest request;
  request.set_virtual_device(static_cast<uint32_t>(index_));
  {
    MutexLock lock(&mu_);
    for (const Work& work : queue_) {
      const auto* install = std::get_if<InstallWork>(&work.action);
      if (install == nullptr || install->wait == nullptr) continue;
      v1::ContentHint* const hint = request.add_contents();
      hint->set_hash_high(install->hash.high);
      hint->set_hash_low(install->hash.low);
      hint->set_size_bytes(install->source.bytes.size());
      if (request.contents_size() == kMaxHints) break;
    }
  }
  absl::StatusOr<v1::LeaseGranted> granted =
      context_->link->RequestLease(request, context_->options.connect_timeout);
  if (ErrorReason(granted.status()) == "TOO_LARGE" &&
      request.contents_size() > 0) {
    // What no worker can hold is refused at its upload, with limit and use, and
    // need not cost the session its device.
    request.clear_contents();
    granted = context_->link->RequestLease(request,
                                           context_->options.connect_timeout);
  }
  DJINN_RETURN_IF_ERROR(granted.status());
  const v1::Lease& lease = granted->lease();
  DJINN_ASSIGN_OR_RETURN(
      std::unique_ptr<ClientStream> owned,
      context_->connector->Connect(lease, context_->session_id));
  ClientStream* const stream = owned.get();
  {
    MutexLock lock(&mu_);
    if (stopped_ || !failure_.ok()) return failure_;
    lease_ = lease;
    placement_ = {lease.worker_id(), granted->placement_reason()};
    stream_ = std::move(owned);
  }
  stream->Start(this);
  v1::ControlRequest request_hello;
  v1::ClientHello* const hello = request_hello.mutable_hello();
  *hello->mutable_protocol() = OwnProtocolWindow();
  hello->set_session_id(context_->session_id);
  hello->set_session_epoch(lease.session_epoch());
  hello->set_lease_token(lease.token());
  hello->set_worker_incarnation(lease.worker_incarnation());
  // A refusal arrives as the stream's end, which says more.
  (void)stream->Send(std::move(request_hello));
  DJINN_RETURN_IF_ERROR(WaitForHello());
  log::Debug("device connected", {{"device", index_},
                                  {"worker", lease.worker_id()},
                                  {"reason", granted->placement_reason()}});
  return absl::OkStatus();
}

absl::Status RemoteDevice::WaitForHello() {
  MutexLock lock(&mu_);
  const Deadline deadline(context_->options.connect_timeout);
  while (!hello_received_) {
    if (!failure_.ok()) return failure_;
    if (deadline.passed()) {
      return WorkerLost(absl::DeadlineExceededError(absl::StrCat(
          "no answer within ",
          absl::FormatDuration(context_->options.connect_timeout))));
    }
    WaitUntil(&connection_changed_, &mu_, deadline);
  }
  DJINN_RETURN_IF_ERROR(CheckHello(hello_, lease_));
  limits_ = sender_limits_ = hello_.limits();
  inline_bytes_.store(limits_.inline_bytes(), std::memory_order_relaxed);
  structures_ = std::make_unique<StructureTable>(limits_.max_structures());
  encoder_ = std::make_unique<RunEncoder>(structures_.get());
  connected_ = true;
  connection_changed_.SignalAll();
  window_changed_.SignalAll();
  return absl::OkStatus();
}

void RemoteDevice::Process(Work work) {
  dead_.Collect(&pending_free_);
  // Room first where the work may need it.
  if (!std::holds_alternative<RunWork>(work.action) &&
      !std::holds_alternative<ReadWork>(work.action)) {
    SendFrees();
  }
  v1::ControlRequest request;
  const bool encoded =
      std::visit([&](auto& action) { return Encode(work, action, &request); },
                 work.action);
  if (!encoded) return;
  if (work.storage && RunEncoder::ReleaseUse(work.storage.get())) {
    pending_free_.push_back(work.storage->id());
  }
  if (!SendOrdered(work.lane, std::move(request), /*ends_work=*/true)) return;
  if (const auto* install = std::get_if<InstallWork>(&work.action)) {
    MutexLock lock(&mu_);
    if (install->wait != nullptr && install->wait->transfer_id == 0) {
      install->wait->state = UploadWait::State::kInlined;
      install->wait->changed.SignalAll();
    }
  }
  SendFrees();
}

bool RemoteDevice::Encode(const Work& work, RunWork& run,
                          v1::ControlRequest* request) {
  RunEncoder::Encoded encoded = encoder_->Encode(
      *run.segment, context_->telling.load(std::memory_order_relaxed));
  // Drops the references to storages here, not under the lock.
  run.segment->Clear();
  {
    MutexLock lock(&mu_);
    recorder_.Recycle(run.segment);
    ++statistics_.runs;
    if (encoded.definition.has_value()) ++statistics_.structures_defined;
  }
  if (encoded.telling.has_value() &&
      context_->TellsFirst(encoded.telling->key_hash)) {
    context_->link->SendStructure(std::move(encoded.telling->structure));
  }
  if (encoded.definition.has_value()) {
    RunEncoder::Definition& definition = *encoded.definition;
    {
      MutexLock lock(&mu_);
      defining_[definition.message.structure_id()].push_back(
          std::move(definition.fingerprint));
    }
    v1::ControlRequest define;
    *define.mutable_ordered()->mutable_define_structure() =
        std::move(definition.message);
    if (!SendOrdered(work.lane, std::move(define), /*ends_work=*/false)) {
      return false;
    }
  }
  *request->mutable_ordered()->mutable_run() = std::move(encoded.run);
  if (run.metadata != nullptr) {
    MutexLock lock(&mu_);
    metadata_[last_sequence_ + 1] = run.metadata;
  }
  return true;
}

bool RemoteDevice::Encode(const Work& work, InstallWork& install,
                          v1::ControlRequest* request) {
  v1::Install* const message = request->mutable_ordered()->mutable_install();
  message->set_storage(work.storage->id());
  message->set_base_version(install.base_version);
  const uint64_t size = install.source.bytes.size();
  const bool fits = size <= sender_limits_.inline_bytes();
  if (fits) {
    message->set_inline_value(install.source.bytes.data(), size);
  } else {
    const uint64_t id = next_transfer_id_++;
    v1::Transfer* const transfer = message->mutable_transfer();
    transfer->set_transfer_id(id);
    transfer->set_size_bytes(size);
    transfer->set_hash_high(install.hash.high);
    transfer->set_hash_low(install.hash.low);
    MutexLock lock(&mu_);
    install.wait->transfer_id = id;
    uploads_[id] = install.wait;
  }
  // The uploading thread holds what is still to be sent.
  install.source = {};
  if (fits) {
    MutexLock lock(&mu_);
    ++statistics_.uploads_inline;
  }
  return true;
}

bool RemoteDevice::Encode(const Work& work, SeedWork& seed,
                          v1::ControlRequest* request) {
  v1::Install* const message = request->mutable_ordered()->mutable_install();
  message->set_storage(work.storage->id());
  message->set_base_version(seed.base_version);
  message->mutable_seed()->set_value(seed.seed);
  return true;
}

bool RemoteDevice::Encode(const Work& work, CreateWork& create,
                          v1::ControlRequest* request) {
  v1::CreateStorage* const message =
      request->mutable_ordered()->mutable_create_storage();
  message->set_storage(work.storage->id());
  message->set_base_version(create.base_version);
  message->set_size_bytes(create.size_bytes);
  return true;
}

bool RemoteDevice::Encode(const Work& work, ReadWork& read,
                          v1::ControlRequest* request) {
  v1::Read* const message = request->mutable_ordered()->mutable_read();
  message->set_storage(work.storage->id());
  message->set_version(read.version);
  *message->mutable_view() = srg::ToProto(read.view);
  ReadWait& wait = *read.wait;
  const bool bulk = wait.bytes > sender_limits_.inline_bytes();
  MutexLock lock(&mu_);
  if (bulk) {
    message->set_transfer_id(next_transfer_id_++);
  }
  // An abandoned one is sent all the same: the order is numbered.
  wait.transfer_id = message->transfer_id();
  reads_[last_sequence_ + 1] = read.wait;
  if (bulk && !wait.abandoned) bulk_reads_[wait.transfer_id] = read.wait;
  return true;
}

bool RemoteDevice::SendOrdered(uint32_t lane, v1::ControlRequest request,
                               bool ends_work) {
  v1::Ordered* const ordered = request.mutable_ordered();
  ordered->set_lane(lane);
  ClientStream* stream = nullptr;
  absl::Status failure;
  {
    MutexLock lock(&mu_);
    ordered->set_sequence(last_sequence_ + 1);
    const uint64_t bytes = request.ByteSizeLong();
    if (bytes > limits_.max_outstanding_bytes()) {
      failure = LimitExceeded("MESSAGE_TOO_LARGE",
                              "one message to the worker (calls with many "
                              "values or very large structures)",
                              limits_.max_outstanding_bytes(), 0, bytes);
    } else {
      failure = AwaitRoom(bytes);
    }
    if (!failure_.ok() || stopped_ || !failure.ok()) {
      processing_ = false;
    } else {
      ++last_sequence_;
      sent_.push_back({last_sequence_, bytes, ends_work});
      sent_bytes_ += bytes;
      statistics_.bytes_up += bytes;
      if (ends_work) processing_ = false;
      stream = stream_.get();
    }
  }
  if (stream == nullptr) {
    // OK: it has failed already, or stops.
    if (!failure.ok()) Fail(std::move(failure));
    return false;
  }
  const absl::Status sent = stream->Send(std::move(request));
  if (sent.ok()) return true;
  absl::Status lost;
  {
    // A stream that ended has a better reason, which OnClosed() brings.
    MutexLock lock(&mu_);
    const Deadline deadline(absl::Seconds(1));
    while (failure_.ok() && !stopped_ && !deadline.passed()) {
      WaitUntil(&sent_changed_, &mu_, deadline);
    }
    lost = WorkerLost(sent);
  }
  Fail(lost);
  return false;
}

absl::Status RemoteDevice::AwaitRoom(uint64_t bytes) {
  const absl::Duration patience = context_->options.operation_timeout;
  Deadline deadline(patience);
  uint64_t seen = progress_;
  while (failure_.ok() && !stopped_ && !sent_.empty() &&
         (sent_.size() >= limits_.max_outstanding() ||
          sent_bytes_ + bytes > limits_.max_outstanding_bytes())) {
    WaitUntil(&sent_changed_, &mu_, deadline);
    if (progress_ != seen) {
      seen = progress_;
      deadline = Deadline(patience);
    } else if (deadline.passed()) {
      return WorkerLost(absl::DeadlineExceededError(
          absl::StrCat("no progress for ", absl::FormatDuration(patience), "; ",
                       sent_.size(), " messages are unfinished")));
    }
  }
  return absl::OkStatus();
}

void RemoteDevice::SendFrees() {
  while (!pending_free_.empty()) {
    {
      MutexLock lock(&mu_);
      if (!connected_ || !failure_.ok()) break;
    }
    v1::ControlRequest request;
    auto* const storages =
        request.mutable_ordered()->mutable_free()->mutable_storages();
    // Each takes ten bytes at most.
    const size_t fits = sender_limits_.max_outstanding_bytes() / 16;
    const size_t count = std::min(
        {pending_free_.size(), kMaxFreesPerMessage, std::max<size_t>(fits, 1)});
    storages->Add(pending_free_.end() - count, pending_free_.end());
    pending_free_.resize(pending_free_.size() - count);
    if (!SendOrdered(0, std::move(request), /*ends_work=*/false)) break;
  }
}

void RemoteDevice::DropEverything() {
  std::deque<Work> works;
  SealedSegments segments;
  {
    MutexLock lock(&mu_);
    works.swap(queue_);
    queued_bytes_ = 0;
    processing_ = false;
    recorder_.SealAll(&segments);
    metadata_.clear();
    defining_.clear();
    reads_.clear();
    bulk_reads_.clear();
    uploads_.clear();
  }
  for (const Work& work : works) {
    if (const auto* run = std::get_if<RunWork>(&work.action)) {
      segments.push_back(run->segment);
    }
  }
  for (Segment* segment : segments) segment->Clear();
  pending_free_.clear();
}

}  // namespace djinn
