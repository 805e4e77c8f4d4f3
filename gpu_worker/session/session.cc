#include "gpu_worker/session/session.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/status_macros.h"
#include "gpu_worker/session/violation.h"

namespace djinn::worker {
namespace {

// A client cannot make the log grow without bound by failing.
constexpr uint64_t kLoggedErrors = 100;

}  // namespace

Session::Session(const SessionEnvironment* environment, std::string tenant,
                 v1::SessionLimits limits, WorkerStream* stream,
                 Callbacks callbacks)
    : environment_(*environment),
      tenant_(std::move(tenant)),
      limits_(std::move(limits)),
      callbacks_(std::move(callbacks)),
      quota_(limits_.memory_bytes()),
      errors_(environment_.worker_id, tenant_, environment_.random),
      outbox_(environment_.outbox_bytes, callbacks_.runnable) {
  outbox_.Attach(stream, 1, {});
}

Session::~Session() { Drop(); }

void Session::Receive(v1::Ordered message) {
  const uint64_t bytes = message.ByteSizeLong();
  absl::Status violation;
  {
    MutexLock lock(&mu_);
    if (failed_ || dropped_) return;
    const uint64_t outstanding = received_ + 1 - completed_;
    if (message.sequence() != received_ + 1) {
      violation = Violation(
          absl::StrCat("sequence ", message.sequence(), " after ", received_));
    } else if (outstanding > limits_.max_outstanding() ||
               bytes > limits_.max_outstanding_bytes() ||
               outstanding_bytes_ > limits_.max_outstanding_bytes() - bytes) {
      violation = MakeError(
          absl::StatusCode::kResourceExhausted, "WINDOW_EXCEEDED",
          absl::StrCat(outstanding, " messages of ", outstanding_bytes_ + bytes,
                       " bytes, at most ", limits_.max_outstanding(), " of ",
                       limits_.max_outstanding_bytes()));
    } else {
      ++received_;
      outstanding_bytes_ += bytes;
      if (message.has_run()) ++queued_runs_;
      inbound_.push_back({std::move(message), bytes});
    }
  }
  if (violation.ok()) {
    callbacks_.runnable();
  } else {
    Fail(std::move(violation));
  }
}

void Session::Send(v1::ControlResponse message) {
  outbox_.PushNews(std::move(message));
}

bool Session::HasWork() const {
  if (outbox_.Full()) return false;
  MutexLock lock(&mu_);
  if (failed_ || dropped_ || running_) return false;
  if (transfer_ != nullptr) {
    return transfer_->state != Transfer::State::kReceiving;
  }
  return !inbound_.empty();
}

void Session::Step() {
  if (!HasWork()) return;
  std::shared_ptr<Transfer> transfer;
  Inbound inbound;
  {
    MutexLock lock(&mu_);
    if (failed_ || dropped_ || running_) return;
    if (transfer_ != nullptr) {
      transfer = std::exchange(transfer_, nullptr);
    } else if (!inbound_.empty()) {
      inbound = std::move(inbound_.front());
      inbound_.pop_front();
    } else {
      return;
    }
    running_ = true;
  }
  absl::Status status;
  if (transfer != nullptr) {
    FinishTransfer(transfer.get());
    Complete(transfer->sequence);
  } else {
    message_bytes_ = inbound.bytes;
    status = Handle(inbound.message);
    if (inbound.message.has_run()) --queued_runs_;
    bool parked;
    {
      MutexLock lock(&mu_);
      parked = transfer_ != nullptr;
    }
    if (status.ok() && !parked) Complete(inbound.message.sequence());
  }
  storage_count_ = storages_.size();
  bool free = false;
  {
    MutexLock lock(&mu_);
    running_ = false;
    free = dropped_;
  }
  if (free) FreeState();
  if (!status.ok()) Fail(std::move(status));
}

absl::Status Session::Handle(const v1::Ordered& message) {
  // Stays for the rest of an Install that waits for its bytes.
  errors_.set_lane(message.lane());
  switch (message.action_case()) {
    case v1::Ordered::kDefineStructure:
      return HandleDefine(message.sequence(), message.define_structure());
    case v1::Ordered::kRun:
      return HandleRun(message.sequence(), message.run());
    case v1::Ordered::kInstall:
      return HandleInstall(message.sequence(), message.install());
    case v1::Ordered::kCreateStorage:
      return HandleCreate(message.sequence(), message.create_storage());
    case v1::Ordered::kRead:
      return HandleRead(message.sequence(), message.read());
    case v1::Ordered::kFree:
      return HandleFree(message.free());
    case v1::Ordered::ACTION_NOT_SET:
      break;
  }
  return Violation(absl::StrCat("message ", message.sequence(),
                                " without an action this worker knows"));
}

void Session::Complete(uint64_t sequence) {
  std::vector<v1::ControlResponse> responses;
  for (const RootError& error : errors_.TakeNew()) {
    if (errors_.count() <= kLoggedErrors) {
      log::Warning("root error",
                   {{"error_id", absl::StrCat(absl::Hex(error->error_id()))},
                    {"tenant", tenant_},
                    {"reason", error->reason()},
                    {"operator", error->operator_name()},
                    {"operands", error->operands()},
                    {"what", error->message()}});
    }
    *responses.emplace_back().mutable_poisoned() = *error;
  }
  for (v1::ControlResponse& reply : std::exchange(replies_, {})) {
    responses.push_back(std::move(reply));
  }
  bool dry;
  {
    MutexLock lock(&mu_);
    completed_ = sequence;
    outstanding_bytes_ -= message_bytes_;
    dry = inbound_.empty();
  }
  const uint64_t unreported = sequence - reported_;
  if (responses.empty() &&
      (dry || unreported > limits_.max_outstanding() / 4)) {
    responses.emplace_back();
  }
  // The client must see what a message led to before it sees it done.
  for (size_t i = 0; i < responses.size(); ++i) {
    const bool last = i + 1 == responses.size();
    responses[i].set_completed_sequence(last ? sequence : sequence - 1);
    if (responses[i].message_case() == v1::ControlResponse::MESSAGE_NOT_SET) {
      outbox_.PushNews(std::move(responses[i]));
    } else {
      outbox_.Push(std::move(responses[i]));
    }
    if (last) reported_ = sequence;
  }
}

void Session::Fail(absl::Status status) {
  {
    MutexLock lock(&mu_);
    if (failed_ || dropped_) return;
    failed_ = true;
  }
  callbacks_.fail(std::move(status));
}

void Session::Drop() {
  std::deque<Inbound> inbound;
  std::shared_ptr<Transfer> transfer;
  cancelled_ = true;
  {
    MutexLock lock(&mu_);
    if (dropped_) return;
    dropped_ = true;
    inbound.swap(inbound_);
    transfer = std::exchange(transfer_, nullptr);
    for (const Inbound& waiting : inbound) {
      if (waiting.message.has_run()) --queued_runs_;
    }
    if (running_) return;  // Step() frees the state.
  }
  FreeState();
}

void Session::FreeState() {
  storages_.Clear();
  structures_.clear();
  storage_count_ = 0;
}

absl::StatusOr<Storage*> Session::NextVersion(uint64_t id,
                                              uint64_t base_version) {
  if (id == 0) return Violation("storage 0");
  Storage* storage = storages_.Find(id);
  if (base_version == 0) {
    if (storages_.Used(id)) {
      return Violation(absl::StrCat("storage ", id, " is born twice"));
    }
    storage = storages_.Create(id);
  } else if (storage == nullptr) {
    return Violation(absl::StrCat("storage ", id, " does not exist"));
  } else if (storage->version != base_version) {
    return Violation(absl::StrCat("storage ", id, " has version ",
                                  storage->version, ", not ", base_version));
  }
  storage->version = base_version + 1;
  return storage;
}

absl::StatusOr<std::shared_ptr<Buffer>> Session::AllocateFor(
    Storage* storage, uint64_t bytes, const Buffer* prefix) {
  const uint64_t before = storage->quota.bytes();
  DJINN_RETURN_IF_ERROR(quota_.Resize(&storage->quota, bytes));
  absl::StatusOr<std::shared_ptr<Buffer>> buffer =
      prefix == nullptr ? environment_.memory->Allocate(tenant_, bytes)
                        : environment_.memory->Clone(tenant_, *prefix, bytes);
  // Back to what it was: that fits, it did before.
  if (!buffer.ok()) quota_.Resize(&storage->quota, before).IgnoreError();
  return buffer;
}

}  // namespace djinn::worker
