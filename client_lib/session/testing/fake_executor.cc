// Executes actions other than runs and values, and keeps storages and versions.
#include "client_lib/session/testing/fake_executor.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/session/testing/fake_worker.h"
#include "common/base/error.h"

namespace djinn {

FakeExecutor::FakeExecutor(const v1::SessionLimits& limits, FakeScript* script,
                           FakeSeen* seen, Respond respond)
    : limits_(limits),
      script_(*script),
      seen_(*seen),
      respond_(std::move(respond)) {}

void FakeExecutor::Reset() {
  last_graph_ = session_runs_ = 0;
  storages_.clear();
  ever_created_.clear();
  models_.clear();
  defined_.clear();
  evicted_.clear();
  left_ = entering_ = false;
  receiving_ = proving_ = needed_ = 0;
}

void FakeExecutor::EvictPlans() {
  for (const auto& [id, defined] : defined_) evicted_.insert(id);
}

bool FakeExecutor::HandOver(const v1::Pull& state, FakeExecutor* to) const {
  to->storages_ = storages_;
  to->ever_created_ = ever_created_;
  to->models_ = models_;
  return left_ && state.ticket() == ticket_ && state.size_bytes() == 100;
}

bool FakeExecutor::Carry(const v1::Ordered& message) {
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
      FakeStorage& storage = Written(create.storage(), create.base_version());
      if (create.version() == 0 || create.base_version() == 0) {
        storage.bytes.resize(create.size_bytes());
      }
      if (create.version() == 0) return true;
      if (create.version() <= create.base_version()) {
        Violation("versions left out backwards");
      }
      storage.version = create.version();
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
      Reply(std::move(response));
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

bool FakeExecutor::CarryMigrate(const v1::Ordered& message) {
  const v1::Migrate& migrate = message.migrate();
  v1::ControlResponse response;
  if (migrate.has_leave()) {
    response.mutable_left()->set_sequence(message.sequence());
    if (migrate.leave().ticket().size() != 16) Violation("a short ticket");
    if (script_.refuse_to_let > 0) {
      --script_.refuse_to_let;
      FillDetail(MakeError(absl::StatusCode::kUnavailable, "OFFERS_PENDING",
                           "others come first"),
                 response.mutable_left()->mutable_refused());
    } else {
      left_ = true;
      ticket_ = migrate.leave().ticket();
      response.mutable_left()->set_state_bytes(100);
      *response.mutable_left()->mutable_use() = UseSoFar();
    }
    Reply(std::move(response));
    return true;
  }
  if (migrate.has_stay()) {
    if (!std::exchange(left_, false)) Violation("stays, and did not leave");
    return true;
  }
  if (message.sequence() != 1 || script_.other == nullptr) {
    Violation("enters in the middle");
    return true;
  }
  entering_ = true;
  if (script_.entries == FakeScript::Entries::kIgnore) return false;
  v1::Entered* const entered = response.mutable_entered();
  entered->set_sequence(1);
  if (script_.entries == FakeScript::Entries::kRefuse) {
    FillDetail(MakeError(absl::StatusCode::kResourceExhausted, "DEVICE_MEMORY",
                         "no room"),
               entered->mutable_refused());
  } else {
    if (!script_.other->HandOver(migrate.enter().state(), this)) {
      Violation("enters from where nobody left");
    }
    entered->set_storage_count(storages_.size());
    entered->set_moved_bytes(100);
  }
  Reply(std::move(response));
  return true;
}

v1::MeteredUse FakeExecutor::UseSoFar() const {
  v1::MeteredUse use;
  use.set_device_nanoseconds(session_runs_ * 1'000'000);
  use.set_received_bytes(session_runs_ * 100);
  use.set_sent_bytes(session_runs_ * 10);
  use.set_runs(session_runs_);
  return use;
}

void FakeExecutor::CarryModel(const v1::Ordered& message) {
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
  if (bytes > script_.model_bytes) {
    FillDetail(
        LimitExceeded("MODEL_BYTES", "a model", script_.model_bytes, 0, bytes),
        registered->mutable_refused());
  } else {
    models_[model.model_id()] = model;
  }
  Reply(std::move(response));
}

void FakeExecutor::CarryProfile(const v1::Ordered& message) {
  const v1::ProfileAction action = message.profile().action();
  const bool starts = action == v1::PROFILE_ACTION_START;
  if (starts == profiling_) Violation("profile");
  profiling_ = action != v1::PROFILE_ACTION_STOP;
  v1::ControlResponse response;
  if (!starts) *response.mutable_profile() = script_.report;
  response.mutable_profile()->set_sequence(message.sequence());
  Reply(std::move(response));
}

FakeStorage& FakeExecutor::Written(uint64_t id, uint64_t base_version) {
  if (base_version == 0 && !ever_created_.insert(id).second) {
    Violation(absl::StrCat("storage ", id, " is created twice"));
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

void FakeExecutor::Violation(std::string what) {
  seen_.violations.push_back(std::move(what));
}

v1::ErrorDetail FakeExecutor::Detail(uint64_t error_id) {
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
