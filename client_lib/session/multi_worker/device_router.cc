#include "client_lib/session/multi_worker/device_router.h"

#include <utility>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/device/replica/replica.h"
#include "client_lib/session/model/fork_guard.h"
#include "client_lib/session/model/operator_table.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn {
namespace {

using Pass = SingleWorkerGate::Pass;

int64_t Difference(uint64_t after, uint64_t before) {
  return static_cast<int64_t>(after) - static_cast<int64_t>(before);
}

}  // namespace

std::shared_ptr<DeviceRouter> DeviceRouter::Make(
    int index, uint64_t incarnation, std::shared_ptr<SessionContext> context) {
  std::shared_ptr<DeviceRouter> device(
      new DeviceRouter(index, incarnation, std::move(context)));
  WorkerSet::OnRepeat on_repeat;
  if (device->context_->options.device_workers.contains(index)) {
    on_repeat = [several = &device->several_](int member,
                                              RepeatedGraph repeated) {
      several->OnRepeat(member, std::move(repeated));
    };
  }
  device->workers_.Begin(device.get(), std::move(on_repeat));
  return device;
}

DeviceRouter::DeviceRouter(int index, uint64_t incarnation,
                           std::shared_ptr<SessionContext> context)
    : context_(std::move(context)),
      workers_(index, incarnation, context_),
      several_(context_, this, &workers_, &captures_),
      graphs_(context_.get(), &workers_, &captures_, &several_) {}

StoragePtr DeviceRouter::NewStorage(uint64_t size_bytes) {
  StoragePtr storage(
      new RemoteStorage(/*id=*/0, shared_from_this(), size_bytes));
  if (ABSL_PREDICT_FALSE(several_.begun())) {
    storage->set_extension(std::make_unique<StorageCopies>());
  } else if (ABSL_PREDICT_FALSE(!workers_.AddUsedByFirst(size_bytes))) {
    several_.LookForRoom();
  }
  return storage;
}

void DeviceRouter::MarkDead(RemoteStorage* storage) {
  if (ABSL_PREDICT_FALSE(storage->extension() != nullptr)) {
    if (!IsForkedChild()) several_.MarkDead(storage);
    return;
  }
  workers_.TakeUsed(0, storage->size_bytes());
  first().MarkDead(storage);
}

bool DeviceRouter::FailureIsKnown() const {
  for (int member = 0; member < workers_.count(); ++member) {
    if (replica::FailureIsKnown(workers_.at(member).state())) return true;
  }
  return false;
}

absl::Status DeviceRouter::Explain(absl::Status error, const Call& call) const {
  if (ErrorReason(error) != "MIXED_DEVICES") return error;
  for (const Touch& touch : call.touches()) {
    const auto* const other =
        dynamic_cast<const DeviceRouter*>(touch.storage->device().get());
    if (other == nullptr || other == this) continue;
    DJINN_RETURN_IF_ERROR(other->first().failure());
  }
  return error;
}

absl::Status DeviceRouter::RecordOnFirst(uint32_t lane, Call* call) {
  if (ABSL_PREDICT_FALSE(captures_.any())) {
    captures_.Add(lane, *call, [this](RemoteStorage* storage) {
      return first().IsCreated(*storage);
    });
    absl::Status status = first().Record(lane, call);
    if (!status.ok()) captures_.Retract(lane);
    return status;
  }
  return first().Record(lane, call);
}

absl::Status DeviceRouter::Record(uint32_t lane, Call* call) {
  if (ABSL_PREDICT_FALSE(IsForkedChild())) return AfterForkError();
  if (ABSL_PREDICT_FALSE(several_.looks())) several_.Begins();
  absl::Status status;
  if (const Pass pass(&several_.gate()); ABSL_PREDICT_TRUE(bool{pass})) {
    status = RecordOnFirst(lane, call);
  } else {
    status = several_.Record(lane, call);
    if (!status.ok()) captures_.Retract(lane);
  }
  if (ABSL_PREDICT_TRUE(status.ok())) return status;
  return Explain(std::move(status), *call);
}

absl::StatusOr<std::vector<ResultMetadata>> DeviceRouter::RecordAndWait(
    uint32_t lane, Call* call) {
  if (ABSL_PREDICT_FALSE(IsForkedChild())) return AfterForkError();
  if (ABSL_PREDICT_FALSE(captures_.any())) {
    captures_.Refuse(
        lane, "DEPENDS_ON_DATA",
        absl::StrCat(
            "the shape of a result depends on data: ",
            OperatorTable::Global().Get(call->operator_id()).FullName()));
  }
  if (const Pass pass(&several_.gate()); pass) {
    // The sizes of the results are counted once they are known.
    std::vector<std::pair<StoragePtr, uint64_t>> creations;
    for (const Touch& touch : call->touches()) {
      if ((touch.access & kCreates) == 0) continue;
      creations.emplace_back(touch.storage, touch.storage->size_bytes());
    }
    auto results = first().RecordAndWait(lane, call);
    for (const auto& [storage, before] : creations) {
      workers_.AddUsed(0, Difference(storage->size_bytes(), before));
    }
    if (results.ok()) return results;
    return Explain(results.status(), *call);
  }
  auto results = several_.RecordAndWait(lane, call);
  if (results.ok()) return results;
  return Explain(results.status(), *call);
}

absl::Status DeviceRouter::Upload(uint32_t lane, RemoteStorage* storage,
                                  SharedBytes source) {
  if (IsForkedChild()) return AfterForkError();
  if (source.bytes.size() != storage->size_bytes()) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, "SIZE_MISMATCH",
        absl::StrCat("an upload of ", source.bytes.size(),
                     " bytes to a storage of ", storage->size_bytes()));
  }
  captures_.Refuse(lane, "UPLOADS", "it sends a tensor of this process");
  absl::Status refusal;
  if (const Pass pass(&several_.gate()); pass) {
    refusal = first().Upload(lane, storage, source);
    if (!LacksRoom(refusal)) return refusal;
  }
  if (!refusal.ok() && !several_.BeginsFor(source.bytes.size())) return refusal;
  return several_.Upload(lane, storage, source, std::move(refusal));
}

absl::Status DeviceRouter::CopyFrom(uint32_t lane, RemoteStorage* storage,
                                    RemoteStorage* source) {
  if (IsForkedChild()) return AfterForkError();
  auto* const from = dynamic_cast<DeviceRouter*>(source->device().get());
  if (from == nullptr || from->context_ != context_) {
    return MakeError(absl::StatusCode::kInvalidArgument, "OTHER_SESSION",
                     "a copy from a device of another session");
  }
  const uint64_t size = storage->size_bytes();
  if (size == 0 || size != source->size_bytes()) {
    return MakeError(absl::StatusCode::kInvalidArgument, "SIZE_MISMATCH",
                     absl::StrCat("a copy of ", source->size_bytes(),
                                  " bytes to a storage of ", size));
  }
  DJINN_ASSIGN_OR_RETURN(PullWork pull, from->Offer(lane, source));
  captures_.Refuse(lane, "COPIES", "it copies from another virtual device");
  if (several_.looks()) several_.Begins();
  if (const Pass pass(&several_.gate()); pass) {
    return first().Pull(lane, storage, std::move(pull));
  }
  return several_.Pull(lane, storage, std::move(pull));
}

absl::StatusOr<PullWork> DeviceRouter::Offer(uint32_t lane,
                                             RemoteStorage* storage) {
  captures_.Refuse(lane, "COPIES", "it copies to another virtual device");
  if (const Pass pass(&several_.gate()); pass) {
    return first().Offer(lane, storage);
  }
  return several_.Offer(lane, storage);
}

absl::Status DeviceRouter::Seed(uint32_t lane, RemoteStorage* generator,
                                uint64_t seed) {
  if (IsForkedChild()) return AfterForkError();
  captures_.Refuse(lane, "SEEDS",
                   "it seeds a generator, or is the first to draw from it");
  if (const Pass pass(&several_.gate()); pass) {
    return first().Seed(lane, generator, seed);
  }
  return several_.Seed(lane, generator, seed);
}

absl::Status DeviceRouter::Resize(uint32_t lane, RemoteStorage* storage,
                                  uint64_t size_bytes) {
  if (IsForkedChild()) return AfterForkError();
  if (const Pass pass(&several_.gate()); pass) {
    const uint64_t before = storage->size_bytes();
    // A storage that does not exist yet is created with its new size.
    if (captures_.any() && first().IsCreated(*storage)) {
      captures_.Refuse(lane, "RESIZES", "it resizes a tensor");
    }
    absl::Status status = first().Resize(lane, storage, size_bytes);
    if (status.ok()) workers_.AddUsed(0, Difference(size_bytes, before));
    return status;
  }
  return several_.Resize(lane, storage, size_bytes);
}

absl::Status DeviceRouter::Read(uint32_t lane, RemoteStorage* storage,
                                const srg::TensorView& view, void* destination,
                                uint64_t bytes) {
  if (ABSL_PREDICT_FALSE(IsForkedChild())) return AfterForkError();
  captures_.Refuse(lane, "READS_VALUE", "it reads a value from the device");
  absl::StatusOr<std::shared_ptr<ReadWait>> wait;
  if (const Pass pass(&several_.gate()); pass) {
    wait = first().BeginRead(lane, storage, view, destination, bytes);
    DJINN_RETURN_IF_ERROR(wait.status());
  } else {
    // This thread waits while others make calls.
    DJINN_ASSIGN_OR_RETURN(
        const std::unique_ptr<PendingRead> read,
        several_.StartRead(lane, storage, view, destination, bytes));
    return read->Wait(absl::InfiniteDuration());
  }
  return *wait == nullptr ? absl::OkStatus()
                          : first().FinishRead(wait->get(), destination);
}

absl::StatusOr<std::unique_ptr<PendingRead>> DeviceRouter::StartRead(
    uint32_t lane, RemoteStorage* storage, const srg::TensorView& view,
    void* destination, uint64_t bytes) {
  if (IsForkedChild()) return AfterForkError();
  captures_.Refuse(lane, "READS_VALUE", "it reads a value from the device");
  if (const Pass pass(&several_.gate()); pass) {
    return first().StartRead(lane, storage, view, destination, bytes);
  }
  return several_.StartRead(lane, storage, view, destination, bytes);
}

uint64_t DeviceRouter::VersionOf(const RemoteStorage& storage) {
  return first().VersionOf(storage);
}

HostValuePtr DeviceRouter::FindHostValue(const StorageAt& storage) {
  return several_.begun() ? nullptr : first().FindHostValue(storage);
}

void DeviceRouter::KeepHostValue(const StorageAt& written,
                                 absl::Span<const StorageAt> operands,
                                 HostValuePtr value, bool readable) {
  if (several_.begun()) return;
  first().KeepHostValue(written, operands, std::move(value), readable);
}

absl::Status DeviceRouter::RegisterModel(uint32_t lane, uint64_t model_id,
                                         absl::string_view name,
                                         std::vector<StoragePtr> storages) {
  if (IsForkedChild()) return AfterForkError();
  const Pass pass(&several_.gate());
  // With several workers, each may have copies of the storages, and none of
  // them counts resident models.
  if (!pass) return absl::OkStatus();
  return first().RegisterModel(lane, model_id, name, std::move(storages));
}

void DeviceRouter::ForgetModel(uint64_t model_id) {
  first().ForgetModel(model_id);
}

absl::Status DeviceRouter::CatchUp() {
  if (IsForkedChild()) return AfterForkError();
  absl::Status status;
  for (int member = 0; member < workers_.count(); ++member) {
    status.Update(workers_.at(member).CatchUp());
  }
  return status;
}

absl::Status DeviceRouter::Synchronize() {
  DJINN_RETURN_IF_ERROR(CatchUp());
  return context_->root_errors.TakeUnreported(index());
}

absl::StatusOr<DevicePlacement> DeviceRouter::Placement() {
  if (IsForkedChild()) return AfterForkError();
  return workers_.Placement();
}

void DeviceRouter::OnMeter(uint32_t lane) {
  captures_.Refuse(lane, "METERS", "it asks what it costs");
}

}  // namespace djinn
