#include "tests/schedules/player.h"

#include <dirent.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/session/multi_worker/device_router.h"
#include "client_lib/session/recording/virtual_device.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "tests/schedules/network.h"
#include "tests/schedules/watchdog.h"

namespace djinn::schedules {
namespace {

// Allows for a machine that hardly executes the test.
constexpr absl::Duration kPatience = absl::Seconds(100);
// Losses that a device survives without a pause between them.
constexpr int kMostLosses = 7;

// Returns whether a call failed because its worker, lease or session is gone.
bool IsLoss(const absl::Status& status) {
  static const auto* const reasons = new std::set<std::string>{
      "WORKER_LOST",  "SESSION_CLOSED",    "LEASE_UNKNOWN",
      "SESSION_LOST", "WRONG_INCARNATION", "SESSION_DROPPED",
      "DRAINING",     "LEASE_EXPIRED",     "UNFINISHED_WORK"};
  return reasons->count(ErrorReason(status)) > 0;
}

// Returns whether the step makes a call to the worker.
bool AsksWorker(const Step& step) {
  return step.action != Action::kNew && step.action != Action::kDrop &&
         step.action != Action::kLose && step.action != Action::kLoseLease &&
         !EndsDevices(step.action);
}

int CountThreads() {
  int count = 0;
  DIR* const tasks = opendir("/proc/self/task");
  while (const dirent* entry = readdir(tasks)) count += entry->d_name[0] != '.';
  closedir(tasks);
  return count;
}

// Waits until there are at most `expected` threads, because the system lists a
// joined thread for a moment longer.
bool AwaitThreadCount(int expected) {
  for (int i = 0; i < 100'000; ++i) {
    if (CountThreads() <= expected) return true;
    TakeTime(1);
  }
  return false;
}

}  // namespace

Player::Player(const Schedule& schedule)
    : schedule_(schedule),
      threads_before_(CountThreads()),
      before_(schedule.steps.size()),
      cluster_(schedule.setup),
      handles_(schedule.storages),
      model_(schedule) {
  const std::vector<Step>& steps = schedule.steps;
  for (size_t i = 0; i < steps.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (steps[j].thread != steps[i].thread &&
          Conflict(schedule, steps[j], steps[i])) {
        before_[i].push_back(static_cast<int>(j));
      }
    }
  }
  MutexLock lock(&mu_);
  states_.resize(steps.size(), State::kWaiting);
  may_end_.resize(schedule.setup.sessions.size());
  ended_.resize(schedule.setup.sessions.size());
}

std::vector<std::string> Player::Play() {
  for (const int session : schedule_.setup.sessions) {
    if (session == static_cast<int>(sessions_.size())) {
      sessions_.push_back(cluster_.Open(session));
    }
    const int index = static_cast<int>(devices_.size());
    devices_.push_back(*sessions_[session]->Device(index));
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < schedule_.setup.threads; ++i) {
    threads.emplace_back([this, i] { RunThread(i); });
  }
  for (std::thread& thread : threads) thread.join();
  if (!schedule_.setup.close_at_once) ReadEverything();
  Close();
  if (std::string left = cluster_.WaitUntilEmpty(); !left.empty()) {
    Complain(absl::StrCat("at the end ", left));
  }
  CheckCounts();
  if (std::string left = cluster_.Stop(); !left.empty()) {
    Complain(std::move(left));
  }
  if (!AwaitThreadCount(threads_before_)) {
    Complain(absl::StrCat(CountThreads(), " threads at the end, ",
                          threads_before_, " before"));
  }
  MutexLock lock(&mu_);
  return complaints_;
}

void Player::Complain(std::string what) {
  MutexLock lock(&mu_);
  complaints_.push_back(std::move(what));
}

void Player::RunThread(int thread) {
  for (size_t i = 0; i < schedule_.steps.size(); ++i) {
    if (schedule_.steps[i].thread == thread) PlayStep(static_cast<int>(i));
  }
}

void Player::AwaitTurn(int index) {
  MutexLock lock(&mu_);
  for (const int earlier : before_[index]) {
    while (states_[earlier] != State::kDone) changed_.Wait(&mu_);
  }
  states_[index] = State::kRunning;
}

void Player::PlayStep(int index) {
  const Step& step = schedule_.steps[index];
  const WhoWaits waits(absl::StrCat("#", index, " ", ToText(step)));
  AwaitTurn(index);
  bool possible;
  bool had_ended;
  {
    MutexLock lock(&mu_);
    possible = model_.Possible(step);
    had_ended = ended_[step.device];
  }
  std::vector<float> values;
  absl::Status status;
  if (possible) status = Carry(step, &values);
  MutexLock lock(&mu_);
  if (possible) Finish(index, step, had_ended, status, values);
  states_[index] = State::kDone;
  changed_.SignalAll();
}

bool Player::IsEnd(int device, const absl::Status& status) const {
  return may_end_[device] && IsLoss(status);
}

void Player::Finish(int index, const Step& step, bool had_ended,
                    const absl::Status& status,
                    const std::vector<float>& values) {
  if (AsksWorker(step)) {
    if (IsEnd(step.device, status)) {
      ended_[step.device] = true;
      return;
    }
    if (had_ended) {
      complaints_.push_back(
          absl::StrCat("#", index, " ", ToText(step),
                       ": its device had ended, but: ", status.ToString()));
      return;
    }
  }
  std::string complaint = model_.Apply(index, step, status, values);
  if (!complaint.empty()) complaints_.push_back(std::move(complaint));
}

RemoteStorage* Player::Result(const Step& step, int64_t count) {
  StoragePtr& handle = handles_[step.storage];
  handle = devices_[step.device]->NewStorage(count * sizeof(float));
  return handle.get();
}

void Player::Drop(int storage) {
  const StoragePtr handle = std::exchange(handles_[storage], StoragePtr());
  handle->device()->MarkDead(handle.get());
}

absl::Status Player::Record(const Step& step, FakeCall& call) {
  return devices_[step.device]->Record(step.thread, call.get());
}

absl::Status Player::Carry(const Step& step, std::vector<float>* values) {
  VirtualDevice& device = *devices_[step.device];
  const auto unary = [&](const char* name) {
    return Record(step, FakeCall(name)
                            .Tensor(Handle(step.operand), step.count)
                            .Result(Result(step, step.count), step.count));
  };
  switch (step.action) {
    case Action::kNew:
      Result(step, step.count);
      return absl::OkStatus();
    case Action::kFill:
      return Record(step, FakeCall("fake::fill_")
                              .Tensor(Handle(step.storage), step.count,
                                      kOverwrites, step.offset)
                              .Real(step.value));
    case Action::kAddValue:
      return Record(
          step, FakeCall("fake::add_")
                    .Tensor(Handle(step.storage),
                            Handle(step.storage)->size_bytes() / sizeof(float),
                            kWrites)
                    .Real(step.value));
    case Action::kAddTensor:
      return Record(step, FakeCall("fake::add_")
                              .Tensor(Handle(step.storage), step.count, kWrites)
                              .Tensor(Handle(step.operand), step.count));
    case Action::kAdd:
      return Record(step, FakeCall("fake::add")
                              .Tensor(Handle(step.operand), step.count)
                              .Tensor(Handle(step.other), step.count)
                              .Result(Result(step, step.count), step.count));
    case Action::kAlias:
      return unary("fake::alias");
    case Action::kFail:
      return unary("fake::fail");
    case Action::kThrow:
      return unary("fake::throw");
    case Action::kWrongShape:
      return unary("fake::wrong_shape");
    case Action::kDraw:
      return Record(step, FakeCall("fake::draw")
                              .Integer(step.count)
                              .Generator(Handle(step.operand))
                              .Result(Result(step, step.count), step.count));
    case Action::kFailInPlace:
      return Record(
          step, FakeCall("fake::fail_")
                    .Tensor(Handle(step.storage),
                            Handle(step.storage)->size_bytes() / sizeof(float),
                            kWrites));
    case Action::kNonzero:
      return CarryNonzero(step, values);
    case Action::kRefused:
      return CarryRefused(step);
    case Action::kSeed:
      return device.Seed(step.thread, Handle(step.storage), step.value);
    case Action::kUpload:
      return CarryUpload(step);
    case Action::kCopy:
      return device.CopyFrom(step.thread, Result(step, step.count),
                             Handle(step.operand));
    case Action::kResize:
      return device.Resize(step.thread, Handle(step.storage),
                           step.count * sizeof(float));
    case Action::kRead: {
      int64_t count;
      {
        MutexLock lock(&mu_);
        count = model_.ReadCount(step);
      }
      return ReadFloats(step, count, values);
    }
    case Action::kDrop:
      Drop(step.storage);
      return absl::OkStatus();
    case Action::kSynchronize:
      return device.Synchronize();
    case Action::kPlacement:
      return device.Placement().status();
    case Action::kCheckpoint:
      return CarryCheckpoint(step);
    case Action::kLose:
    case Action::kLoseLease:
      return CarryLoss(step);
    case Action::kRestart:
    case Action::kEndLease:
    case Action::kUnplug:
    case Action::kClose:
      return CarryEnd(step);
  }
  return absl::InternalError("unknown step");
}

absl::Status Player::CarryCheckpoint(const Step& step) {
  const absl::Status made =
      sessions_[schedule_.setup.sessions[step.device]]->Checkpoint(
          absl::Minutes(2));
  return ErrorReason(made) == "CHECKPOINT_MEMORY" ? absl::OkStatus() : made;
}

absl::Status Player::CarryLoss(const Step& step) {
  MutexLock loss_lock(&loss_mu_);
  {
    MutexLock lock(&mu_);
    certain_ = false;
  }
  // A run that may be executed whenever a worker crashes is given up after the
  // second one, or after the fourth one if workers have executors. The end of a
  // lease blames no run.
  const bool crash = step.action == Action::kLose;
  ++losses_;
  crashes_ += crash ? 1 : 0;
  if (losses_ > kMostLosses || crashes_ > (schedule_.setup.executors ? 3 : 1)) {
    AwaitReplays(step.thread);
    losses_ = 1;
    crashes_ = crash ? 1 : 0;
  }
  if (!crash) {
    // The value chooses the lease of a device that has several workers.
    cluster_.EndLease(step.device + 100 * static_cast<int>(step.value),
                      /*lost=*/true);
  } else {
    cluster_.Restart(/*drains=*/false);
  }
  return absl::OkStatus();
}

void Player::AwaitReplays(int thread) {
  for (const std::shared_ptr<VirtualDevice>& device : devices_) {
    // Sends everything that was recorded before the reads.
    device->Synchronize().IgnoreError();
    // Synchronize() does not wait for what was executed once. Each worker
    // answers this read after all that came before.
    for (const auto& replica : static_cast<DeviceRouter&>(*device).Members()) {
      const StoragePtr last(new RemoteStorage(/*id=*/0, device, sizeof(float)));
      float value = 0;
      replica->Read(thread, last.get(), FloatView(1), &value, sizeof(value))
          .IgnoreError();
      replica->MarkDead(last.get());
    }
  }
}

absl::Status Player::ReadFloats(const Step& step, int64_t count,
                                std::vector<float>* values) {
  values->assign(count, -1);
  return devices_[step.device]->Read(step.thread, Handle(step.storage),
                                     FloatView(count, step.offset, step.stride),
                                     values->data(), count * sizeof(float));
}

absl::Status Player::CarryNonzero(const Step& step,
                                  std::vector<float>* values) {
  FakeCall call("fake::nonzero");
  call.Tensor(Handle(step.operand), step.count).UnknownResult(Result(step, 0));
  DJINN_ASSIGN_OR_RETURN(
      const std::vector<ResultMetadata> results,
      devices_[step.device]->RecordAndWait(step.thread, call.get()));
  values->resize(results.at(0).view.sizes.at(0));
  return absl::OkStatus();
}

// Executes the refused call alone in its run, because the refusal would affect
// every other call of the run. For this, first reads the operand, which seals
// the thread's lane and creates the operand.
absl::Status Player::CarryRefused(const Step& step) {
  Step seal{Action::kRead, step.thread, step.device, step.operand};
  std::vector<float> values;
  ReadFloats(seal, 1, &values).IgnoreError();
  DJINN_RETURN_IF_ERROR(
      Record(step, FakeCall("fake::refused")
                       .Tensor(Handle(step.operand), step.count)
                       .Result(Result(step, step.count), step.count)));
  ReadFloats(seal, 1, &values).IgnoreError();
  return absl::OkStatus();
}

absl::Status Player::CarryUpload(const Step& step) {
  RemoteStorage* const storage = Handle(step.storage);
  const auto source = std::make_shared<std::vector<float>>(
      Content(step.value, storage->size_bytes() / sizeof(float)));
  const absl::Status status = devices_[step.device]->Upload(
      step.thread, storage,
      {{reinterpret_cast<const char*>(source->data()),
        source->size() * sizeof(float)},
       source});
  // The source belongs to the caller again, even after an error.
  std::fill(source->begin(), source->end(), -1);
  return status;
}

absl::Status Player::CarryEnd(const Step& step) {
  const std::vector<int>& sessions = schedule_.setup.sessions;
  const int session = sessions[step.device];
  {
    MutexLock lock(&mu_);
    certain_ = false;
    for (size_t i = 0; i < sessions.size(); ++i) {
      if (step.action == Action::kRestart ||
          (step.action == Action::kUnplug ? static_cast<int>(i) == step.device
                                          : sessions[i] == session)) {
        may_end_[i] = true;
      }
    }
  }
  switch (step.action) {
    case Action::kRestart:
      cluster_.Restart(step.value != 0);
      return absl::OkStatus();
    case Action::kEndLease:
      cluster_.EndLease(step.device, /*lost=*/false);
      return absl::OkStatus();
    case Action::kUnplug:
      cluster_.Unplug(step.device);
      return absl::OkStatus();
    default:
      return CloseSession(session, absl::Milliseconds(step.value));
  }
}

absl::Status Player::CloseSession(int index, absl::Duration timeout) {
  const absl::Status closed = sessions_[index]->Close(timeout);
  // Ignores root errors of calls whose poison was not read.
  if (!ErrorMetadataValue(closed, "error_id").empty()) return absl::OkStatus();
  MutexLock lock(&mu_);
  const std::vector<int>& sessions = schedule_.setup.sessions;
  for (size_t i = 0; i < sessions.size(); ++i) {
    if (sessions[i] == index && IsEnd(static_cast<int>(i), closed)) {
      return absl::OkStatus();
    }
  }
  return closed;
}

void Player::ReadEverything() {
  for (int i = 0; i < schedule_.storages; ++i) {
    Step step{Action::kRead};
    bool readable;
    {
      MutexLock lock(&mu_);
      readable = model_.Readable(i);
      if (readable) step.count = model_.count(i);
    }
    if (!readable || step.count == 0) continue;
    step.storage = i;
    step.thread = i % 2;
    for (size_t d = 0; d < devices_.size(); ++d) {
      if (devices_[d] == handles_[i]->device())
        step.device = static_cast<int>(d);
    }
    const WhoWaits waits(absl::StrCat("the last ", ToText(step)));
    bool had_ended;
    {
      MutexLock lock(&mu_);
      had_ended = ended_[step.device];
    }
    std::vector<float> values;
    const absl::Status status = ReadFloats(step, step.count, &values);
    MutexLock lock(&mu_);
    Finish(static_cast<int>(schedule_.steps.size()), step, had_ended, status,
           values);
  }
}

void Player::Close() {
  for (size_t i = 0; i < sessions_.size(); ++i) {
    const WhoWaits waits(absl::StrCat("the end of session ", i));
    const absl::Status closed = CloseSession(i, kPatience);
    if (!closed.ok()) {
      Complain(absl::StrCat("session ", i, " closed with ", closed.ToString()));
    }
  }
  uint64_t sent = 0;
  for (const auto& session : sessions_) {
    const Statistics statistics = session->statistics();
    sent += statistics.runs;
    MutexLock lock(&mu_);
    resumes_ += statistics.resumes;
    recoveries_ += statistics.recoveries;
    checkpoints_ += statistics.checkpoints;
    copies_ += statistics.device_copies;
  }
  const uint64_t executed = cluster_.core()->counters().runs;
  MutexLock lock(&mu_);
  if (certain_ && sent != executed + model_.refused()) {
    complaints_.push_back(absl::StrCat(sent, " runs sent, ", executed,
                                       " executed, ", model_.refused(),
                                       " refused"));
  }
  handles_.clear();
  devices_.clear();
  sessions_.clear();
}

uint64_t Player::resumes() {
  MutexLock lock(&mu_);
  return resumes_;
}

uint64_t Player::recoveries() {
  MutexLock lock(&mu_);
  return recoveries_;
}

uint64_t Player::checkpoints() {
  MutexLock lock(&mu_);
  return checkpoints_;
}

uint64_t Player::copies() {
  MutexLock lock(&mu_);
  return copies_;
}

void Player::CheckCounts() {
  MutexLock lock(&mu_);
  const std::shared_ptr<worker::WorkerCore> core = cluster_.core();
  const worker::ExecutionCounters& counters = core->counters();
  if (schedule_.setup.memory == Memory::kScarce || !certain_) return;
  if (counters.nodes == model_.nodes() &&
      counters.failed_nodes == model_.failed() &&
      counters.skipped_nodes == model_.skipped()) {
    return;
  }
  complaints_.push_back(
      absl::StrCat("calls executed, failed, skipped: ", counters.nodes.load(),
                   ", ", counters.failed_nodes.load(), ", ",
                   counters.skipped_nodes.load(), "; expected ", model_.nodes(),
                   ", ", model_.failed(), ", ", model_.skipped()));
}

}  // namespace djinn::schedules
