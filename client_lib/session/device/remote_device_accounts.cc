// Tells the worker which storages registered callables capture, and asks it for
// what the session has used.
#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/ascii.h"
#include "client_lib/session/device/remote_device.h"
#include "client_lib/session/model/fork_guard.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn {
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

absl::Status RemoteDevice::RegisterModel(uint32_t lane, uint64_t model_id,
                                         absl::string_view name,
                                         std::vector<StoragePtr> storages) {
  if (IsForkedChild()) return AfterForkError();
  const auto wait = std::make_shared<ModelWait>();
  const uint64_t bytes = storages.size() * kIdBytes + kMaxBesidesIds;
  {
    MutexLock lock(&mu_);
    if (!end_.usable()) return end_.Reason();
    DJINN_RETURN_IF_ERROR(AwaitWelcome());
    if (bytes > limits_.max_outstanding_bytes()) {
      return LimitExceeded("MESSAGE_TOO_LARGE", "the storages of a model",
                           limits_.max_outstanding_bytes(), 0, bytes);
    }
  }
  DJINN_RETURN_IF_ERROR(QueueHere(
      [&](CallRecorder::Admit admit) {
        // The registration follows the messages that create the storages.
        return recorder_.QueueBehind(
            storages,
            {lane, StoragePtr(), bytes,
             ModelWork{model_id, NameForPeople(name), storages, wait}},
            admit);
      },
      [] {}));
  SendNow();
  MutexLock lock(&answers_.mu);
  DJINN_RETURN_IF_ERROR(answers_.Await(wait.get(), [&] { return wait->done; }));
  return wait->refusal;
}

void RemoteDevice::ForgetModel(uint64_t model_id) {
  if (IsForkedChild()) return;
  std::vector<StoragePtr> unnamed;  // dropped without the lock
  {
    MutexLock lock(&mu_);
    // A closing session has no models.
    if (!end_.usable()) return;
    // The registering thread may have given up. A registration that is queued
    // behind other work would come after this message.
    queue_.Visit([&](Work& work) {
      auto* const model = std::get_if<ModelWork>(&work.action);
      if (model == nullptr || model->model_id != model_id) return;
      std::move(model->storages.begin(), model->storages.end(),
                std::back_inserter(unnamed));
      model->storages.clear();
    });
    forgotten_models_.push_back(model_id);
    forgets_models_.store(true, std::memory_order_relaxed);
  }
  free_due_.store(true, std::memory_order_relaxed);
  wakeup_.Set();
}

void RemoteDevice::EncodeForgottenModels(EncodedMessages* messages) {
  if (!forgets_models_.load(std::memory_order_relaxed)) return;
  std::vector<uint64_t> ids;
  {
    MutexLock lock(&mu_);
    forgets_models_.store(false, std::memory_order_relaxed);
    ids.swap(forgotten_models_);
  }
  for (const uint64_t id : ids) {
    auto request = std::make_shared<v1::ControlRequest>();
    request->mutable_ordered()->mutable_register_model()->set_model_id(id);
    encoder_.EncodeOther(0, std::move(request), messages);
  }
}

absl::StatusOr<std::shared_ptr<MeterWait>> RemoteDevice::AskMeter(
    uint32_t lane) {
  auto wait = std::make_shared<MeterWait>();
  const bool records = recorder_.HasOpenSegments();
  {
    MutexLock lock(&mu_);
    if (!end_.usable()) return end_.Reason();
    if (!welcomed_ && !queue_.needs_lease() && !records) {
      wait->done = true;  // nothing was called that has a cost
      return wait;
    }
  }
  DJINN_RETURN_IF_ERROR(QueueHere(
      [&](CallRecorder::Admit admit) {
        return recorder_.QueueBehindAll(
            {lane, StoragePtr(), 0, MeterWork{wait}}, admit);
      },
      [] {}));
  wakeup_.Set();
  return wait;
}

absl::StatusOr<v1::MeteredUse> RemoteDevice::AwaitMeter(MeterWait* wait) {
  MutexLock lock(&answers_.mu);
  DJINN_RETURN_IF_ERROR(answers_.Await(wait, [&] { return wait->done; }));
  return wait->use;
}

}  // namespace djinn
