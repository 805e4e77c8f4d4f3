// Implements a session on a fake worker: waiting messages, storages and
// versions, and actions other than runs and values.
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/session/testing/fake_worker.h"
#include "common/base/error.h"

namespace djinn {

void FakeWorker::Reset() {
  last_sequence_ = completed_ = last_reply_ = acknowledged_ = 0;
  counted_ = counted_bytes_ = done_ = done_bytes_ = last_graph_ = 0;
  waiting_.clear();
  replies_.clear();
  storages_.clear();
  models_.clear();
  defined_.clear();
  evicted_.clear();
  left_ = entering_ = false;
  session_runs_ = 0;
}

void FakeWorker::Work() {
  while (!paused_ && !waiting_.empty() &&
         replies_.size() < kMaxUnacknowledged) {
    if (!Carry(waiting_.front())) return;
    if (!waiting_.front().has_free()) {
      ++done_;
      done_bytes_ += waiting_.front().ByteSizeLong();
    }
    completed_ = waiting_.front().sequence();
    received_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    changed_.SignalAll();
    Respond({});
  }
}

bool FakeWorker::Carry(const v1::Ordered& message) {
  if (left_ && !message.migrate().has_stay()) {
    Violation("a message of a session that left");
  }
  switch (message.action_case()) {
    case v1::Ordered::kDefineGraph:
      CarryDefine(message.define_graph());
      return true;
    case v1::Ordered::kRun:
      return CarryRun(message);
    case v1::Ordered::kInstall:
      return CarryInstall(message);
    case v1::Ordered::kCreateStorage: {
      const v1::CreateStorage& create = message.create_storage();
      Written(create.storage(), create.base_version())
          .bytes.resize(create.size_bytes());
      return true;
    }
    case v1::Ordered::kRead:
      CarryRead(message);
      return true;
    case v1::Ordered::kFree:
      for (const uint64_t id : message.free().storages()) {
        if (storages_.erase(id) == 0) {
          Violation(absl::StrCat("free of unknown storage ", id));
        }
      }
      return true;
    case v1::Ordered::kOffer: {
      const v1::Offer& offer = message.offer();
      const auto found = storages_.find(offer.storage());
      if (found == storages_.end() ||
          found->second.version != offer.version() ||
          offer.ticket().size() != 16) {
        Violation(absl::StrCat("offer of storage ", offer.storage(),
                               " at version ", offer.version()));
      }
      return true;
    }
    case v1::Ordered::kProfile:
      CarryProfile(message);
      return true;
    case v1::Ordered::kMigrate:
      return CarryMigrate(message);
    case v1::Ordered::kMeter: {
      v1::ControlResponse response;
      response.mutable_metered()->set_sequence(message.sequence());
      *response.mutable_metered()->mutable_use() = UseSoFar();
      Respond(std::move(response));
      return true;
    }
    case v1::Ordered::kRegisterModel:
      CarryModel(message);
      return true;
    case v1::Ordered::ACTION_NOT_SET:
      Violation("ordered message without action");
  }
  return true;
}

bool FakeWorker::CarryMigrate(const v1::Ordered& message) {
  const v1::Migrate& migrate = message.migrate();
  v1::ControlResponse response;
  if (migrate.has_leave()) {
    response.mutable_left()->set_sequence(message.sequence());
    if (migrate.leave().ticket().size() != 16) Violation("a short ticket");
    if (refuse_to_let_ > 0) {
      --refuse_to_let_;
      FillDetail(MakeError(absl::StatusCode::kUnavailable, "OFFERS_PENDING",
                           "others come first"),
                 response.mutable_left()->mutable_refused());
    } else {
      left_ = true;
      ticket_ = migrate.leave().ticket();
      response.mutable_left()->set_state_bytes(100);
      *response.mutable_left()->mutable_use() = UseSoFar();
    }
    Respond(std::move(response));
    return true;
  }
  if (migrate.has_stay()) {
    if (!std::exchange(left_, false)) Violation("stays, and did not leave");
    return true;
  }
  if (message.sequence() != 1 || other_ == nullptr) {
    Violation("enters in the middle");
    return true;
  }
  entering_ = true;
  changed_.SignalAll();
  if (entries_ == Entries::kIgnore) return false;
  v1::Entered* const entered = response.mutable_entered();
  entered->set_sequence(1);
  if (entries_ == Entries::kRefuse) {
    FillDetail(MakeError(absl::StatusCode::kResourceExhausted, "DEVICE_MEMORY",
                         "no room"),
               entered->mutable_refused());
  } else {
    // No thread takes the two locks in the opposite order.
    MutexLock lock(&other_->mu_);
    if (!other_->left_ || migrate.enter().state().ticket() != other_->ticket_ ||
        migrate.enter().state().worker_id() != other_->id_ ||
        migrate.enter().state().size_bytes() != 100) {
      Violation("enters from where nobody left");
    }
    storages_ = other_->storages_;
    ever_born_ = other_->ever_born_;
    models_ = other_->models_;
    entered->set_storage_count(storages_.size());
    entered->set_moved_bytes(100);
  }
  Respond(std::move(response));
  return true;
}

v1::MeteredUse FakeWorker::UseSoFar() const {
  v1::MeteredUse use;
  use.set_device_nanoseconds(session_runs_ * 1'000'000);
  use.set_received_bytes(session_runs_ * 100);
  use.set_sent_bytes(session_runs_ * 10);
  use.set_runs(session_runs_);
  return use;
}

void FakeWorker::CarryModel(const v1::Ordered& message) {
  const v1::RegisterModel& model = message.register_model();
  if (model.model_id() == 0 || model.name().size() > 256) {
    Violation("model");
  }
  if (model.storages().empty()) {
    models_.erase(model.model_id());
    return;
  }
  v1::ControlResponse response;
  v1::ModelRegistered* const registered = response.mutable_model_registered();
  registered->set_sequence(message.sequence());
  std::set<uint64_t> ids;
  uint64_t bytes = 0;
  for (const uint64_t id : model.storages()) {
    if (storages_.count(id) == 0 || !ids.insert(id).second) {
      Violation(absl::StrCat("model with storage ", id));
      continue;
    }
    bytes += storages_.at(id).bytes.size();
  }
  registered->set_size_bytes(bytes);
  if (bytes > model_bytes_) {
    FillDetail(LimitExceeded("MODEL_BYTES", "a model", model_bytes_, 0, bytes),
               registered->mutable_refused());
  } else {
    models_[model.model_id()] = model;
  }
  Respond(std::move(response));
}

void FakeWorker::CarryProfile(const v1::Ordered& message) {
  const v1::ProfileAction action = message.profile().action();
  const bool starts = action == v1::PROFILE_ACTION_START;
  if (starts == profiling_) Violation("profile");
  profiling_ = action != v1::PROFILE_ACTION_STOP;
  v1::ControlResponse response;
  if (!starts) *response.mutable_profile() = report_;
  response.mutable_profile()->set_sequence(message.sequence());
  Respond(std::move(response));
}

FakeStorage& FakeWorker::Written(uint64_t id, uint64_t base_version) {
  if (base_version == 0 && !ever_born_.insert(id).second) {
    Violation(absl::StrCat("storage ", id, " is born twice"));
  }
  if (base_version != 0 && storages_.count(id) == 0) {
    Violation(absl::StrCat("storage ", id, " does not exist"));
  }
  FakeStorage& storage = storages_[id];
  if (storage.version != base_version) {
    Violation(absl::StrCat("storage ", id, " has version ", storage.version,
                           ", not ", base_version));
  }
  storage.version = base_version + 1;
  return storage;
}

void FakeWorker::Violation(std::string what) {
  violations_.push_back(std::move(what));
}

v1::ErrorDetail FakeWorker::Detail(uint64_t error_id) {
  v1::ErrorDetail detail;
  detail.set_error_id(error_id);
  detail.set_code(3);
  detail.set_reason("OPERATOR_FAILED");
  detail.set_message("it did not work");
  detail.set_operator_name("test::op");
  detail.set_worker_id("w0");
  detail.set_tenant("tenant");
  return detail;
}

}  // namespace djinn
