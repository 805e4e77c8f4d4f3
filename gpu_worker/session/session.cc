#include "gpu_worker/session/session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/status_macros.h"
#include "gpu_worker/memory/device_memory.h"
#include "gpu_worker/session/violation.h"

namespace djinn::worker {
namespace {

// A client cannot make the log grow without bound by failing.
constexpr uint64_t kLoggedErrors = 100;

// Bound the room that a session hears of for eager uploads: this much, and this
// part of what is free, because other sessions may take some of it meanwhile.
// The room is rounded down to whole steps, so that it changes seldom and does
// not show what other sessions do.
constexpr uint64_t kMaxContentsUnderWay = uint64_t{32} << 20;
constexpr uint64_t kRoomPart = 4;
constexpr uint64_t kRoomStep = uint64_t{1} << 20;

}  // namespace

Session::Session(const SessionEnvironment* environment, std::string session_id,
                 std::string tenant, std::shared_ptr<TenantAccount> account,
                 std::shared_ptr<Traffic> traffic, v1::SessionLimits limits,
                 Callbacks callbacks)
    : environment_(*environment),
      session_id_(std::move(session_id)),
      tenant_(std::move(tenant)),
      limits_(std::move(limits)),
      callbacks_(std::move(callbacks)),
      account_(std::move(account)),
      peer_(std::make_shared<const RunPeer>(
          RunPeer{tenant_, log::ShortId(session_id_)})),
      gates_(environment->served, std::shared_ptr<const ServedTime::Tenant>(
                                      account_, account_->served())),
      inbox_(limits_),
      quota_(MemoryLimits::Of(limits_), account_->memory()),
      storage_memory_(environment_.memory, &quota_, tenant_),
      offers_(environment_.offers, &quota_, session_id_),
      pulls_(environment, session_id_, tenant_, SettledCallback()),
      uploads_(environment, tenant_, limits_.inline_bytes(), traffic.get(),
               {SettledCallback(), callbacks_.charge}),
      models_(account_.get()),
      structures_(environment, tenant_, limits_.max_structures()),
      errors_(environment_.worker_id, tenant_, environment_.random),
      traffic_(std::move(traffic)),
      outbox_(environment_.outbox_bytes, traffic_.get(), environment_.clock,
              SettledCallback()) {}

Session::~Session() { Drop(); }

bool Session::HasWork() const {
  if (outbox_.Full()) return false;
  MutexLock lock(&mu_);
  return HasWorkLocked();
}

bool Session::HasWorkLocked() const {
  if (OverLocked() || running_) return false;
  if (upload_.has_value()) return uploads_.settled();
  if (fetch_.has_value()) return pulls_.settled();
  if (need_.has_value()) return need_->supply.has_value();
  return !inbox_.empty();
}

void Session::NoteNext() {
  const absl::Duration next = inbox_.deadline();
  deadline_.store(next == absl::InfiniteDuration()
                      ? kNever
                      : absl::ToInt64Nanoseconds(next),
                  std::memory_order_relaxed);
  fast_run_next_.store(inbox_.fast_run_next(), std::memory_order_relaxed);
  const v1::Run* const run = inbox_.next_run();
  v1::Phase phase = v1::PHASE_UNSPECIFIED;
  if (run != nullptr && !phases_.empty()) {
    const auto found = phases_.find(run->structure_id());
    if (found != phases_.end()) phase = found->second;
  }
  next_phase_.store(phase, std::memory_order_relaxed);
  const absl::Duration expected =
      run == nullptr || next == absl::InfiniteDuration()
          ? absl::ZeroDuration()
          : run_times_.Expected(run->structure_id(),
                                environment_.clock->Monotonic());
  expected_.store(absl::ToInt64Nanoseconds(expected),
                  std::memory_order_relaxed);
}

bool Session::Step(absl::Duration now) { return StepAt(now); }

bool Session::StepAt(std::optional<absl::Duration> now) {
  if (!HasWork()) return false;
  std::optional<Upload> upload;
  std::optional<Fetch> fetch;
  std::optional<Inbox::Item> item;
  std::optional<v1::DefineStructure> supply;
  {
    MutexLock lock(&mu_);
    if (!HasWorkLocked()) return false;
    running_ = true;
    if (upload_.has_value()) {
      upload = std::exchange(upload_, std::nullopt);
    } else if (fetch_.has_value()) {
      fetch = std::exchange(fetch_, std::nullopt);
    } else {
      item = inbox_.Take();
      if (now.has_value() && item->message.has_run()) {
        NoteRunBegins(*item, next_phase(), *now);
      } else if (now.has_value() && item->message.has_define_structure()) {
        gates_.Enter(v1::RUN_GATE_PLAN, *now);
      } else if (now.has_value()) {
        gates_.Enter(v1::RUN_GATE_SESSION, *now);
      }
      NoteNext();
      if (need_.has_value()) supply = std::move(need_->supply);
      need_.reset();
    }
    if (now.has_value() && !item.has_value()) {
      gates_.Enter(v1::RUN_GATE_SESSION, *now);
    }
  }
  const bool run = item.has_value() && item->message.has_run();
  absl::Status status;
  if (upload.has_value()) {
    StepUpload(*upload);
    CompleteUnlessParked(upload->sequence);
  } else if (fetch.has_value()) {
    if (entering_ != nullptr) {
      GoOnEntering(fetch->sequence, TakeFetched());
    } else {
      FinishPull(*fetch);
    }
    CompleteUnlessParked(fetch->sequence);
  } else {
    status = StepItem(*std::move(item), std::move(supply));
  }
  if (ABSL_PREDICT_FALSE(profile_ != nullptr)) profile_->Leave();
  EndStep();
  FailUnlessOk(std::move(status));
  return run;
}

absl::Status Session::StepItem(Inbox::Item item,
                               std::optional<v1::DefineStructure> supply) {
  if (supply.has_value()) DJINN_RETURN_IF_ERROR(structures_.Supply(*supply));
  message_bytes_ = item.bytes;
  message_counts_ = !item.message.has_free();
  message_deadline_ = item.deadline;
  message_arrived_ = item.arrived;
  message_mark_ = item.mark;
  // What only looks at storages changes no account.
  const bool accounts = !item.message.has_offer() && !item.message.has_read();
  if (accounts && offers_.pins()) offers_.ForgetFetched();
  absl::Status status = Handle(item.message);
  if (accounts && offers_.pins()) offers_.Account(storages_);
  structures_.ForgetSupplied();
  if (std::exchange(put_off_, false)) {
    NoteNoRoom(item.message.sequence());
    PutBack(std::move(item));
    return absl::OkStatus();
  }
  if (const uint64_t id = std::exchange(missing_structure_, 0); id != 0) {
    AskFor(id, std::move(item));
    return absl::OkStatus();
  }
  if (item.message.has_run()) {
    --queued_runs_;
    ++runs_done_;
  }
  DJINN_RETURN_IF_ERROR(status);
  {
    MutexLock lock(&mu_);
    // A run may have been stopped in its middle.
    if (cancelling_ && item.message.has_run()) return absl::OkStatus();
  }
  CompleteUnlessParked(item.message.sequence());
  return absl::OkStatus();
}

void Session::CompleteUnlessParked(uint64_t sequence) {
  {
    MutexLock lock(&mu_);
    if (upload_.has_value() || fetch_.has_value()) return;
  }
  Complete(sequence);
}

void Session::EndStep() {
  bool tell = false;
  {
    MutexLock lock(&mu_);
    if (!dropped_ && !cancelling_) {
      running_ = false;
      return;
    }
    tell = !dropped_;
  }
  FreeState();
  outbox_.Forget();
  v1::ControlResponse response;
  {
    MutexLock lock(&mu_);
    running_ = false;
    response.set_completed_sequence(inbox_.completed());
  }
  response.mutable_cancelled();
  if (tell) outbox_.PushNews(std::move(response));
}

absl::Status Session::Handle(const v1::Ordered& message) {
  // Stays for the rest of an Install that waits for its bytes.
  errors_.set_lane(message.lane());
  if (leaving_ && !message.migrate().has_stay()) {
    return Violation(absl::StrCat("message ", message.sequence(),
                                  " of a session that left"));
  }
  switch (message.action_case()) {
    case v1::Ordered::kDefineStructure:
      Enter(SessionProfile::kAdmission);
      return HandleDefine(message.sequence(), message.define_structure());
    case v1::Ordered::kRun:
      Enter(SessionProfile::kAdmission);
      return HandleRun(message.sequence(), message.run());
    case v1::Ordered::kInstall:
      Enter(SessionProfile::kBind);
      return HandleInstall(message.sequence(), message.install());
    case v1::Ordered::kCreateStorage:
      Enter(SessionProfile::kBind);
      return HandleCreate(message.sequence(), message.create_storage());
    case v1::Ordered::kRead:
      Enter(SessionProfile::kReply);
      return HandleRead(message.sequence(), message.read());
    case v1::Ordered::kFree:
      Enter(SessionProfile::kBind);
      return HandleFree(message.free());
    case v1::Ordered::kOffer:
      return HandleOffer(message.sequence(), message.offer());
    case v1::Ordered::kProfile:
      return HandleProfile(message.sequence(), message.profile());
    case v1::Ordered::kMigrate:
      return HandleMigrate(message.sequence(), message.migrate());
    case v1::Ordered::kMeter:
      HandleMeter(message.sequence());
      return absl::OkStatus();
    case v1::Ordered::kRegisterModel:
      return HandleModel(message.sequence(), message.register_model());
    case v1::Ordered::ACTION_NOT_SET:
      break;
  }
  return Violation(absl::StrCat("message ", message.sequence(),
                                " without an action this worker knows"));
}

void Session::Complete(uint64_t sequence) {
  traffic_->Add(Traffic::kMessagesIn, message_bytes_);
  CountStorages();
  structure_count_ = static_cast<uint32_t>(structures_.size());
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
  v1::Window window;
  uint64_t stream_number;
  const WindowWidth width = account_->Share(limits_);
  {
    MutexLock lock(&mu_);
    stream_number = stream_number_;
    inbox_.Complete(sequence, std::exchange(message_bytes_, 0),
                    message_counts_);
    inbox_.Grant(width);
    window = inbox_.window();
    dry = inbox_.empty();
  }
  const uint64_t messages = window.messages() - reported_window_.messages();
  const uint64_t bytes = window.bytes() - reported_window_.bytes();
  if (responses.empty() &&
      (dry || sequence - reported_ > limits_.max_outstanding() / 4 ||
       messages > width.messages / 4 || bytes > width.bytes / 4)) {
    responses.emplace_back();
  }
  // The client must see what a message led to before it sees it done.
  for (size_t i = 0; i < responses.size(); ++i) {
    v1::ControlResponse& response = responses[i];
    const bool last = i + 1 == responses.size();
    response.set_completed_sequence(last ? sequence : sequence - 1);
    if (last) {
      reported_ = sequence;
      if (messages > 0 || bytes > 0) {
        *response.mutable_window() = window;
        reported_window_ = window;
      }
      SayRoom(&response);
    }
    if (ABSL_PREDICT_FALSE(profile_ != nullptr) && response.has_read()) {
      AddTiming(&response);
    }
    if (response.message_case() == v1::ControlResponse::MESSAGE_NOT_SET) {
      outbox_.PushNews(std::move(response));
    } else {
      outbox_.Push(std::move(response));
    }
  }
  {
    // A new stream's hello says what replies have been said for.
    MutexLock lock(&mu_);
    announced_ = sequence;
    if (stream_number == stream_number_) return;
  }
  // What had no reply went to a stream that is no more.
  v1::ControlResponse again;
  again.set_completed_sequence(sequence);
  SayRoom(&again);
  outbox_.PushNews(std::move(again));
}

uint64_t Session::RoomForContents() const {
  const Ledger::Usage device = environment_.memory->ledger()->usage();
  const uint64_t room =
      std::min(device.limit - device.used, quota_.RoomForContents());
  return std::min(room / kRoomPart / kRoomStep * kRoomStep,
                  kMaxContentsUnderWay);
}

void Session::SayRoom(v1::ControlResponse* response) {
  const uint64_t room = RoomForContents();
  if (reported_room_.exchange(room, std::memory_order_relaxed) == room) return;
  response->set_content_room(room);
}

void Session::Fail(absl::Status status) {
  {
    MutexLock lock(&mu_);
    if (OverLocked()) return;
    failed_ = true;
  }
  callbacks_.fail(std::move(status));
}

void Session::CheckDeadlines() {
  const absl::Duration now = environment_.clock->Monotonic();
  const absl::Duration timeout = environment_.transfer_idle_timeout;
  bool attached;
  absl::Status failure;
  {
    MutexLock lock(&mu_);
    attached = attached_;
    // Nothing can come without a stream.
    if (attached && need_.has_value() && !need_->supply.has_value() &&
        now - need_->since >= timeout) {
      failure =
          MakeError(absl::StatusCode::kDeadlineExceeded, "NEED_TIMEOUT",
                    absl::StrCat("structure ", need_->structure_id,
                                 " was asked for again and did not come for ",
                                 absl::FormatDuration(timeout)));
    }
  }
  if (absl::Status silent = CheckAcknowledged(now); !silent.ok()) {
    return Fail(std::move(silent));
  }
  if (!failure.ok()) return Fail(std::move(failure));
  pulls_.CheckDeadline();
  uploads_.CheckDeadline(attached);
}

void Session::Cancel() {
  bool running = false;
  {
    MutexLock lock(&mu_);
    if (OverLocked()) return;
    cancelling_ = true;
    cancelled_ = stopped_ = true;
    AbandonRuns(environment_.clock->Monotonic());
    ForgetInbox();
    upload_.reset();
    fetch_.reset();
    need_.reset();
    running = std::exchange(running_, true);
  }
  if (!running) EndStep();  // Otherwise Step() does.
}

void Session::Drop() {
  bool running = false;
  stopped_ = true;
  {
    MutexLock lock(&mu_);
    if (dropped_) return;
    dropped_ = true;
    ForgetInbox();
    upload_.reset();
    fetch_.reset();
    need_.reset();
    if (std::exchange(attached_, false)) account_->Leave();
    running = std::exchange(running_, true);
  }
  if (!running) EndStep();  // Otherwise Step() frees the state.
}

void Session::ForgetInbox() {
  const Inbox::Forgotten forgotten = inbox_.Clear();
  queued_runs_ -= forgotten.runs;
  traffic_->Add(Traffic::kMessagesIn, forgotten.bytes);
}

void Session::FreeState() {
  // Of a message that was begun and is not completed.
  traffic_->Add(Traffic::kMessagesIn, std::exchange(message_bytes_, 0));
  offers_.Clear();
  entering_ = nullptr;
  pulls_.Forget();
  uploads_.Forget();
  storages_.Clear();
  models_.Clear();
  structures_.Clear();
  EndProfile();
  CountStorages();
  structure_count_ = 0;
}

void Session::CountStorages() {
  const uint64_t now = storages_.size();
  const auto more = static_cast<int64_t>(now - storage_count_);
  storage_count_ = now;
  if (more == 0) return;
  const uint64_t all = account_->AddStorages(more);
  if (more < 0 || all <= TenantAccount::kMaxStorages) return;
  Fail(MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_STORAGES",
                 absl::StrCat("tenant ", tenant_, " has ", all,
                              " storages on this worker, at most ",
                              TenantAccount::kMaxStorages, " are allowed"),
                 {{"limit", absl::StrCat(TenantAccount::kMaxStorages)},
                  {"used", absl::StrCat(all)}}));
}

bool Session::busy() const {
  MutexLock lock(&mu_);
  return running_ || inbox_.outstanding() > 0;
}

v1::SessionUse Session::use() const {
  const auto fill = [this](StorageClass storage_class, v1::StorageUse* use) {
    const SessionQuota::ClassUse used = quota_.used(storage_class);
    use->set_count(used.count);
    use->set_size_bytes(used.bytes);
  };
  v1::SessionUse use;
  fill(StorageClass::kContent, use.mutable_contents());
  fill(StorageClass::kOwn, use.mutable_storages());
  fill(StorageClass::kGenerator, use.mutable_generators());
  if (quota_.used(StorageClass::kCache).count > 0) {
    fill(StorageClass::kCache, use.mutable_caches());
  }
  use.set_queued_runs(queued_runs_);
  use.set_structure_count(structure_count_);
  models_.Report(&use);
  MutexLock lock(&mu_);
  use.set_outstanding(static_cast<uint32_t>(inbox_.outstanding()));
  use.set_outstanding_bytes(inbox_.outstanding_bytes());
  return use;
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

}  // namespace djinn::worker
