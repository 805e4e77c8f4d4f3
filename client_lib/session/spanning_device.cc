#include "client_lib/session/spanning_device.h"

#include <optional>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/execution_flag.h"
#include "client_lib/session/fork_guard.h"
#include "client_lib/session/operator_table.h"
#include "common/error.h"
#include "common/log/log.h"
#include "common/status_macros.h"

namespace djinn {
namespace {

std::string ErrorIdOf(const absl::Status& status) {
  return ErrorMetadataValue(status, "error_id");
}

// Whether a worker refused an upload for lack of room, of all that may be wrong
// with one: refusals are root errors.
bool LacksRoom(const absl::Status& status) {
  return absl::IsResourceExhausted(status) && !ErrorIdOf(status).empty();
}

}  // namespace

bool SpanningDevice::IsRootError(const absl::Status& status) {
  return !ErrorIdOf(status).empty();
}

StoragePtr SpanningDevice::NewStorage(uint64_t size_bytes) {
  StoragePtr storage(
      new RemoteStorage(/*id=*/0, shared_from_this(), size_bytes));
  if (ABSL_PREDICT_FALSE(spans())) {
    storage->copies_ = new StorageCopies;
    return storage;
  }
  const int64_t size = static_cast<int64_t>(size_bytes);
  const int64_t used =
      used_[0].fetch_add(size, std::memory_order_relaxed) + size;
  if (ABSL_PREDICT_FALSE(used > 0 && static_cast<uint64_t>(used) >
                                         first_->memory_bytes())) {
    looks_.store(true, std::memory_order_release);
  }
  return storage;
}

void SpanningDevice::MarkDead(RemoteStorage* storage) {
  if (ABSL_PREDICT_FALSE(storage->copies_ != nullptr)) {
    if (IsForkedChild()) return;
    // Who makes something of it right now goes on.
    HeldValue* const value = storage->copies_->value.get();
    if (value == nullptr || value->Die()) Bury(storage);
    return;
  }
  used_[0].fetch_sub(static_cast<int64_t>(storage->size_bytes()),
                     std::memory_order_relaxed);
  first_->MarkDead(storage);
}

void SpanningDevice::Bury(RemoteStorage* storage) {
  const StorageCopies& copies = *storage->copies_;
  if (copies.kept_by >= 0 ||
      copies.plans != plans_.load(std::memory_order_acquire)) {
    ForgetPlanned(*storage, copies);
  }
  const auto size = static_cast<int64_t>(storage->size_bytes());
  for (int member = 0; member < count(); ++member) {
    if (copies.Counts(member)) {
      used_[member].fetch_sub(size, std::memory_order_relaxed);
    }
    if (copies.at[member]) {
      members_[member]->MarkDead(copies.at[member].get());
    }
  }
  first_->MarkDead(storage);
}

absl::Status SpanningDevice::Record(uint32_t lane, Call* call) {
  if (ABSL_PREDICT_TRUE(!looks_.load(std::memory_order_acquire))) {
    absl::Status status = first_->Record(lane, call);
    if (!RemoteDevice::IsBeganToSpan(status)) return status;
  }
  return RecordSlow(lane, call);
}

absl::Status SpanningDevice::RecordSlow(uint32_t lane, Call* call) {
  if (IsForkedChild()) return AfterForkError();
  MutexLock lock(&mu_);
  if (!SpansNow()) return first_->Record(lane, call);
  NoteCall(lane, *call);
  Routed routed;
  DJINN_RETURN_IF_ERROR(Route(lane, call, &routed));
  std::shared_ptr<const Recipe> recipe = RecipeFor(*call, routed);
  DJINN_RETURN_IF_ERROR(members_[routed.member]->Record(lane, call, kOrdered));
  // It may have been recorded to be carried out fast.
  if (recipe != nullptr && !recipe->cheap() && FastExecutionWasUsed()) {
    recipe = nullptr;
  }
  return Settle(lane, routed, std::move(recipe));
}

absl::StatusOr<std::vector<ResultMetadata>> SpanningDevice::RecordAndWait(
    uint32_t lane, Call* call) {
  if (ABSL_PREDICT_FALSE(IsForkedChild())) return AfterForkError();
  if (!spans()) {
    // What it turns out to be is counted by then.
    std::vector<std::pair<StoragePtr, uint64_t>> births;
    for (const Touch& touch : call->touches()) {
      if ((touch.access & kBirth) == 0) continue;
      births.emplace_back(touch.storage, touch.storage->size_bytes());
    }
    auto results = first_->RecordAndWait(lane, call);
    if (!RemoteDevice::IsBeganToSpan(results.status())) {
      for (const auto& [storage, before] : births) {
        used_[0].fetch_add(static_cast<int64_t>(storage->size_bytes()) -
                               static_cast<int64_t>(before),
                           std::memory_order_relaxed);
      }
      return results;
    }
  }
  MutexLock lock(&mu_);
  RefuseRecording(
      lane, "DEPENDS_ON_DATA",
      absl::StrCat(
          "the shape of a result depends on data: ",
          OperatorTable::Global().Get(call->operator_id()).FullName()));
  Routed routed;
  DJINN_RETURN_IF_ERROR(Route(lane, call, &routed));
  std::vector<const RemoteStorage*> copies;
  for (const Touch& touch : call->touches()) {
    copies.push_back(touch.storage.get());
  }
  auto results = members_[routed.member]->RecordAndWait(lane, call, kOrdered);
  // What a call that failed has spoilt is there, too; one that was not taken
  // has changed nothing.
  if (!results.ok() && !IsRootError(results.status())) return results;
  for (size_t i = 0; i < routed.named.size(); ++i) {
    const Use& use = routed.named[i];
    if ((use.access & kBirth) == 0) continue;
    use.storage->size_bytes_.store(copies[i]->size_bytes(),
                                   std::memory_order_relaxed);
  }
  DJINN_RETURN_IF_ERROR(Settle(lane, routed));
  return results;
}

absl::Status SpanningDevice::Upload(uint32_t lane, RemoteStorage* storage,
                                    SharedBytes source) {
  if (IsForkedChild()) return AfterForkError();
  absl::Status refusal;
  if (!spans()) {
    refusal = first_->Upload(lane, storage, source);
    if (RemoteDevice::IsBeganToSpan(refusal)) {
      refusal = absl::OkStatus();
    } else if (!LacksRoom(refusal)) {
      return refusal;
    }
  }
  if (source.bytes.size() != storage->size_bytes()) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, "SIZE_MISMATCH",
        absl::StrCat("an upload of ", source.bytes.size(),
                     " bytes to a storage of ", storage->size_bytes()));
  }
  MutexLock lock(&mu_);
  if (!refusal.ok() && !spans()) {
    if (!AddMember(source.bytes.size())) return refusal;
    // It counts there already.
    LearnRoom(0, 0);
  }
  RefuseRecording(lane, "UPLOADS", "it sends a tensor of this process");
  return UploadAnywhere(lane, storage, source, std::move(refusal));
}

absl::Status SpanningDevice::UploadAnywhere(uint32_t lane,
                                            RemoteStorage* storage,
                                            const SharedBytes& source,
                                            absl::Status refusal) {
  const auto size = static_cast<int64_t>(source.bytes.size());
  // The first one may have refused it.
  const bool refused = !refusal.ok();
  StorageCopies& copies = CopiesOf(storage);
  const bool tied = copies.holders != 0 && !refused;
  // Where it is, or where the others went; then wherever there may be room.
  const int first = tied ? HomeOf(storage) : filling_;
  std::vector<int> order;
  if (tied || RoomToTry(first) >= size) order.push_back(first);
  for (int next = 1; next <= count(); ++next) {
    const int member = (filling_ + next) % count();
    if (member == first || (member == 0 && refused)) continue;
    if (RoomToTry(member) >= size) order.push_back(member);
  }
  bool asked = false;
  for (size_t i = 0;; ++i) {
    if (i == order.size()) {
      const int next = count();
      if (!std::exchange(asked, true) && AddMember(source.bytes.size())) {
        order.push_back(next);
      } else if (order.empty()) {
        // It is a worker that says what is missing.
        order.push_back(first);
      } else {
        return refusal;
      }
    }
    const int member = order[i];
    RemoteStorage* const copy = CopyAt(storage, member);
    const absl::Status status =
        members_[member]->Upload(lane, copy, source, kOrdered);
    if (status.ok()) {
      if (!tied) filling_ = last_ = member;
      const absl::Status written = Wrote(lane, storage, member);
      UnlearnRoom(member);
      return written;
    }
    if (!LacksRoom(status)) return status;
    LearnRoom(member, size);
    if (copies.holders == 0) {
      // Whoever reads it is told so.
      DJINN_RETURN_IF_ERROR(Wrote(lane, storage, member));
    } else if (!copies.Holds(member)) {
      // It keeps what it had, where it had it.
      DropCopy(storage, member);
    }
    refusal = status;
  }
}

absl::Status SpanningDevice::CopyFrom(uint32_t lane, RemoteStorage* storage,
                                      RemoteStorage* source) {
  if (IsForkedChild()) return AfterForkError();
  auto* const from = dynamic_cast<SpanningDevice*>(source->device().get());
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
  if (!looks_.load(std::memory_order_acquire)) {
    absl::Status status = first_->Pull(lane, storage, pull);
    if (!RemoteDevice::IsBeganToSpan(status)) return status;
  }
  MutexLock lock(&mu_);
  if (!SpansNow()) return first_->Pull(lane, storage, std::move(pull));
  RefuseRecording(lane, "COPIES", "it copies from another virtual device");
  const int member =
      CopiesOf(storage).holders != 0 ? HomeOf(storage) : ChooseForBytes(size);
  DJINN_RETURN_IF_ERROR(members_[member]->Pull(lane, CopyAt(storage, member),
                                               std::move(pull), kOrdered));
  return Wrote(lane, storage, member);
}

absl::StatusOr<PullWork> SpanningDevice::Offer(uint32_t lane,
                                               RemoteStorage* storage) {
  if (!spans()) {
    absl::StatusOr<PullWork> offer = first_->Offer(lane, storage);
    if (!RemoteDevice::IsBeganToSpan(offer.status())) return offer;
  }
  MutexLock lock(&mu_);
  RefuseRecording(lane, "COPIES", "it copies to another virtual device");
  const int member = HomeOf(storage);
  DJINN_ASSIGN_OR_RETURN(
      PullWork pull,
      members_[member]->Offer(lane, CopyAt(storage, member), kOrdered));
  Count(storage, member);
  return pull;
}

absl::Status SpanningDevice::Seed(uint32_t lane, RemoteStorage* generator,
                                  uint64_t seed) {
  if (IsForkedChild()) return AfterForkError();
  if (!spans()) {
    absl::Status status = first_->Seed(lane, generator, seed);
    if (!RemoteDevice::IsBeganToSpan(status)) return status;
  }
  MutexLock lock(&mu_);
  RefuseRecording(lane, "SEEDS",
                  "it seeds a generator, or is the first to draw from it");
  const int member = HomeOf(generator);
  DJINN_RETURN_IF_ERROR(
      members_[member]->Seed(lane, CopyAt(generator, member), seed, kOrdered));
  CopiesOf(generator).generator = true;
  return Wrote(lane, generator, member);
}

absl::Status SpanningDevice::Resize(uint32_t lane, RemoteStorage* storage,
                                    uint64_t size_bytes) {
  if (IsForkedChild()) return AfterForkError();
  const uint64_t before = storage->size_bytes();
  if (!spans()) {
    absl::Status status = first_->Resize(lane, storage, size_bytes);
    if (!RemoteDevice::IsBeganToSpan(status)) {
      if (status.ok()) {
        used_[0].fetch_add(
            static_cast<int64_t>(size_bytes) - static_cast<int64_t>(before),
            std::memory_order_relaxed);
      }
      return status;
    }
  }
  MutexLock lock(&mu_);
  const StorageCopies& copies = CopiesOf(storage);
  if (copies.holders == 0) {
    DJINN_RETURN_IF_ERROR(first_->failure());
    storage->size_bytes_.store(size_bytes, std::memory_order_relaxed);
    return absl::OkStatus();
  }
  RefuseRecording(lane, "RESIZES", "it resizes a tensor");
  const int member = HomeOf(storage);
  // First: who counts it has counted its old size.
  DJINN_RETURN_IF_ERROR(Wrote(lane, storage, member));
  DJINN_RETURN_IF_ERROR(members_[member]->Resize(lane, CopyAt(storage, member),
                                                 size_bytes, kOrdered));
  for (int each = 0; each < count(); ++each) {
    if (!copies.Counts(each)) continue;
    used_[each].fetch_add(
        static_cast<int64_t>(size_bytes) - static_cast<int64_t>(before),
        std::memory_order_relaxed);
  }
  storage->size_bytes_.store(size_bytes, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status SpanningDevice::Read(uint32_t lane, RemoteStorage* storage,
                                  const srg::TensorView& view,
                                  void* destination, uint64_t bytes) {
  if (ABSL_PREDICT_TRUE(!spans())) {
    absl::Status status = first_->Read(lane, storage, view, destination, bytes);
    if (!RemoteDevice::IsBeganToSpan(status)) return status;
  }
  // Others go on while this thread waits.
  DJINN_ASSIGN_OR_RETURN(const std::unique_ptr<PendingRead> read,
                         StartRead(lane, storage, view, destination, bytes));
  return read->Wait(absl::InfiniteDuration());
}

absl::StatusOr<std::unique_ptr<PendingRead>> SpanningDevice::StartRead(
    uint32_t lane, RemoteStorage* storage, const srg::TensorView& view,
    void* destination, uint64_t bytes) {
  if (!spans()) {
    auto read = first_->StartRead(lane, storage, view, destination, bytes);
    if (!RemoteDevice::IsBeganToSpan(read.status())) return read;
  }
  if (IsForkedChild()) return AfterForkError();
  MutexLock lock(&mu_);
  RefuseRecording(lane, "READS_VALUE", "it reads a value from the device");
  const int member = HomeOf(storage);
  auto read = members_[member]->StartRead(lane, CopyAt(storage, member), view,
                                          destination, bytes, kOrdered);
  if (read.ok()) Count(storage, member);
  return read;
}

uint64_t SpanningDevice::VersionOf(const RemoteStorage& storage) {
  return first_->VersionOf(storage);
}

HostValuePtr SpanningDevice::FindHostValue(const StorageAt& storage) {
  return spans() ? nullptr : first_->FindHostValue(storage);
}

void SpanningDevice::KeepHostValue(const StorageAt& written,
                                   absl::Span<const StorageAt> operands,
                                   HostValuePtr value, bool readable) {
  if (spans()) return;
  first_->KeepHostValue(written, operands, std::move(value), readable);
}

absl::StatusOr<std::vector<StoragePtr>> SpanningDevice::Replay(
    uint32_t lane, const std::shared_ptr<const Recording>& recording,
    absl::Span<RemoteStorage* const> given) {
  if (!spans()) {
    auto outputs = first_->Replay(lane, recording, given);
    if (!RemoteDevice::IsBeganToSpan(outputs.status())) return outputs;
  }
  return ReplayShared(lane, recording, given);
}

absl::Status SpanningDevice::RegisterModel(uint32_t lane, uint64_t model_id,
                                           absl::string_view name,
                                           std::vector<StoragePtr> storages) {
  // Where several have copies of them, nobody counts models.
  if (spans()) return absl::OkStatus();
  const absl::Status registered =
      first_->RegisterModel(lane, model_id, name, std::move(storages));
  return RemoteDevice::IsBeganToSpan(registered) ? absl::OkStatus()
                                                 : registered;
}

void SpanningDevice::ForgetModel(uint64_t model_id) {
  first_->ForgetModel(model_id);
}

absl::Status SpanningDevice::Synchronize() {
  if (IsForkedChild()) return AfterForkError();
  absl::Status status;
  for (int member = 0; member < count(); ++member) {
    status.Update(members_[member]->CatchUp());
  }
  DJINN_RETURN_IF_ERROR(status);
  return context_->root_errors.TakeUnreported(index_);
}

absl::Status SpanningDevice::CheckOwn(const Call& call) const {
  for (const Touch& touch : call.touches()) {
    if (touch.storage->device().get() == this) continue;
    return MakeError(absl::StatusCode::kInvalidArgument, "MIXED_DEVICES",
                     "the call names storages of two virtual devices");
  }
  return absl::OkStatus();
}

absl::Status SpanningDevice::Route(uint32_t lane, Call* call, Routed* routed) {
  DJINN_RETURN_IF_ERROR(CheckOwn(*call));
  std::optional<double> remaining;
  for (bool all_there = false; !all_there;) {
    DJINN_ASSIGN_OR_RETURN(const Choice choice, Choose(*call));
    routed->member = choice.member;
    if (!remaining.has_value()) remaining = RemainingFrom(*call, choice.member);
    // Ends: every further round has one plan less to follow.
    DJINN_ASSIGN_OR_RETURN(all_there,
                           BringAll(lane, *call, choice, *remaining, routed));
  }
  for (Touch& touch : call->touches()) {
    RemoteStorage* const copy = CopyAt(touch.storage.get(), routed->member);
    routed->named.push_back({touch.storage, touch.access});
    touch.storage = StoragePtr(copy);
  }
  // The program goes on at the next stage: what it leaves need not wait for its
  // return, or the last stage would wait for the end of all. Where workers are
  // short of room instead, what it leaves may free some of it by then.
  if (routed->member != last_ && plans_.load(std::memory_order_relaxed) > 0) {
    members_[last_]->Ship(lane);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> SpanningDevice::BringAll(uint32_t lane, const Call& call,
                                              const Choice& choice,
                                              double remaining_seconds,
                                              Routed* routed) {
  const int member = choice.member;
  absl::InlinedVector<RemoteStorage*, 8> brought;
  for (const Touch& touch : call.touches()) {
    RemoteStorage* const storage = touch.storage.get();
    StorageCopies& copies = CopiesOf(storage);
    if (IgnoresContents(touch.access) && ChangesVersion(touch.access)) continue;
    if (copies.IsUnsure(member)) {
      DJINN_RETURN_IF_ERROR(MakeSure(lane, storage, member));
    }
    if (copies.holders == 0 || copies.Holds(member)) continue;
    // What is to stay there this thread waits for.
    const bool stays =
        choice.displaced || (choice.kept && copies.kept_by == member);
    if (stays) brought.push_back(storage);
    DJINN_RETURN_IF_ERROR(
        Bring(lane, storage, member,
              stays ? StageOrder::kUnknown : remaining_seconds));
  }
  if (brought.empty()) return true;
  DJINN_ASSIGN_OR_RETURN(routed->unsound, Move(lane, brought, member,
                                               /*told=*/!choice.displaced));
  if (routed->unsound.empty() || choice.displaced) return true;
  // Nobody asked for the plan: it goes on without.
  for (RemoteStorage* const storage : routed->unsound) {
    DropCopy(storage, member);
    ForgetKeeper(storage);
  }
  log::Warning("a worker does not take what it should keep",
               {{"device", index_},
                {"member", member},
                {"storages", routed->unsound.size()}});
  routed->unsound.clear();
  return false;
}

absl::Status SpanningDevice::Settle(uint32_t lane, const Routed& routed,
                                    std::shared_ptr<const Recipe> recipe) {
  last_ = routed.member;
  absl::Status status;
  for (const Use& use : routed.named) {
    if (ChangesVersion(use.access)) {
      status.Update(Wrote(lane, use.storage.get(), routed.member));
      CopiesOf(use.storage.get()).recipe = recipe;
    } else {
      // One that nothing had written is zero-filled there.
      Count(use.storage.get(), routed.member);
    }
  }
  for (RemoteStorage* const storage : routed.unsound) {
    const StorageCopies& copies = CopiesOf(storage);
    // Not if the call has written it: that is the newest version now.
    if (copies.owner != routed.member) DropCopy(storage, routed.member);
  }
  return status;
}

}  // namespace djinn
