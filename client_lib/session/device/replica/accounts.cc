// Tells the worker which storages registered callables capture, and asks it for
// what the session has used and measured.
#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/ascii.h"
#include "client_lib/session/device/replica/replica.h"
#include "client_lib/session/device/replica/replica_state.h"
#include "client_lib/session/model/fork_guard.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn::replica {
namespace {

// The worker's limit on a name.
constexpr size_t kMaxNameBytes = 256;
// Bytes of an id in a message, and of everything else in it.
constexpr uint64_t kIdBytes = 10;
constexpr uint64_t kMaxBesidesIds = 1024;

// Returns a printable form of the name, which may be any text and is for human
// readers only.
std::string NameForPeople(absl::string_view name) {
  std::string text(name.substr(0, kMaxNameBytes));
  std::replace_if(
      text.begin(), text.end(),
      [](unsigned char c) { return !absl::ascii_isprint(c); }, '?');
  return text;
}

}  // namespace

absl::Status RegisterModel(State& r, uint32_t lane, uint64_t model_id,
                           absl::string_view name,
                           std::vector<StoragePtr> storages) {
  ConnectionState& c = r.connection;
  if (IsForkedChild()) return AfterForkError();
  const auto wait = std::make_shared<ModelWait>();
  const uint64_t bytes = storages.size() * kIdBytes + kMaxBesidesIds;
  {
    MutexLock lock(&c.mu);
    if (!c.end.usable()) return TellEnd(r);
    DJINN_RETURN_IF_ERROR(AwaitWelcome(r));
    if (bytes > c.limits.max_outstanding_bytes()) {
      return LimitExceeded("MESSAGE_TOO_LARGE", "the storages of a model",
                           c.limits.max_outstanding_bytes(), 0, bytes);
    }
  }
  DJINN_RETURN_IF_ERROR(QueueHere(
      r,
      [&](CallRecorder::Admit admit) {
        // The registration follows the messages that create the storages.
        return r.recorder.QueueBehind(
            storages,
            {lane, StoragePtr(), bytes,
             ModelWork{model_id, NameForPeople(name), storages, wait}},
            admit);
      },
      [] {}));
  SendNow(r);
  MutexLock lock(&r.answers.mu);
  DJINN_RETURN_IF_ERROR(
      r.answers.Await(wait.get(), [&] { return wait->done; }));
  return wait->refusal;
}

void ForgetModel(State& r, uint64_t model_id) {
  ConnectionState& c = r.connection;
  if (IsForkedChild()) return;
  std::vector<StoragePtr> unnamed;  // dropped without the lock
  {
    MutexLock lock(&c.mu);
    // A closing session has no models.
    if (!c.end.usable()) return;
    // The registering thread may have given up. A registration that is queued
    // behind other work would come after this message.
    r.queue.Visit([&](Work& work) {
      auto* const model = std::get_if<ModelWork>(&work.action);
      if (model == nullptr || model->model_id != model_id) return;
      std::move(model->storages.begin(), model->storages.end(),
                std::back_inserter(unnamed));
      model->storages.clear();
    });
    r.sender.forgotten.Add(model_id);
  }
  r.sender.free_due.store(true, std::memory_order_relaxed);
  r.sender.wakeup.Set();
}

absl::StatusOr<std::shared_ptr<MeterWait>> AskMeter(State& r, uint32_t lane) {
  ConnectionState& c = r.connection;
  auto wait = std::make_shared<MeterWait>();
  const bool records = r.recorder.HasOpenSegments();
  {
    MutexLock lock(&c.mu);
    if (!c.end.usable()) return TellEnd(r);
    if (!c.welcomed && !r.queue.needs_lease() && !records) {
      wait->done = true;  // nothing was called that has a cost
      return wait;
    }
  }
  DJINN_RETURN_IF_ERROR(QueueHere(
      r,
      [&](CallRecorder::Admit admit) {
        return r.recorder.QueueBehindAll(
            {lane, StoragePtr(), 0, MeterWork{wait}}, admit);
      },
      [] {}));
  r.sender.wakeup.Set();
  return wait;
}

absl::StatusOr<v1::MeteredUse> AwaitMeter(State& r, MeterWait* wait) {
  MutexLock lock(&r.answers.mu);
  DJINN_RETURN_IF_ERROR(r.answers.Await(wait, [&] { return wait->done; }));
  return wait->use;
}

absl::Status FinishProfile(State& r) {
  ConnectionState& c = r.connection;
  if (IsForkedChild()) return AfterForkError();
  const auto end = [&] {
    MutexLock lock(&r.answers.mu);
    r.answers.profiler.End();
  };
  {
    MutexLock lock(&r.answers.mu);
    if (!r.answers.profiler.active()) return absl::OkStatus();
  }
  absl::Status status;
  {
    MutexLock lock(&c.mu);
    status = AwaitWelcome(r);
    if (status.ok() && !c.end.usable()) status = c.end.Reason();
  }
  if (!status.ok()) {
    end();
    return status;
  }
  const auto wait = std::make_shared<ProfileWait>();
  // Admitted at once: a device that is profiled does not go to another worker.
  status =
      r.recorder.QueueBehindAll({0, StoragePtr(), 0, ProfileWork{wait}},
                                [](absl::FunctionRef<void()> push) { push(); });
  SendNow(r);
  if (status.ok()) {
    MutexLock lock(&r.answers.mu);
    status = r.answers.Await(wait.get(), [&] { return wait->done; });
  }
  end();
  return status;
}

void AddStatistics(const State& r, Statistics* sum) {
  r.recorder.AddStatistics(sum);
  MutexLock lock(&r.answers.mu);
  r.answers.table.AddStatistics(sum);
  sum->uploads_sent += r.answers.statistics.uploads_sent;
  sum->uploads_not_kept += r.answers.statistics.uploads_not_kept;
  sum->uploads_already_held += r.answers.statistics.uploads_already_held;
  sum->device_copies += r.answers.statistics.device_copies;
  sum->bytes_up += r.answers.statistics.bytes_up;
  sum->bytes_down += r.answers.statistics.bytes_down;
  sum->resumes += r.answers.statistics.resumes;
  sum->recoveries += r.answers.statistics.recoveries;
  sum->messages_replayed += r.answers.statistics.messages_replayed;
  sum->checkpoints += r.answers.statistics.checkpoints;
  sum->checkpoint_bytes += r.answers.statistics.checkpoint_bytes;
  sum->bytes_resent += r.answers.statistics.bytes_resent;
  sum->needs_answered += r.answers.statistics.needs_answered;
}

}  // namespace djinn::replica
