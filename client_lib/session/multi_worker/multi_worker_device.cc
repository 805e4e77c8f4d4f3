#include "client_lib/session/multi_worker/multi_worker_device.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "client_lib/session/model/execution_flag.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"

namespace djinn {
namespace {

// Cost in bytes of a generator on another replica. The generator's state passes
// through this process, which waits for it.
constexpr int64_t kGeneratorCost = 1 << 20;

}  // namespace

MultiWorkerDevice::MultiWorkerDevice(std::shared_ptr<SessionContext> context,
                                     VirtualDevice* owner, WorkerSet* workers,
                                     GraphCaptures* captures)
    : context_(std::move(context)),
      owner_(owner),
      workers_(workers),
      captures_(captures),
      plans_(context_.get(), workers),
      table_(owner, workers, &plans_),
      rounds_(context_.get()),
      mover_(context_.get(), workers, &table_, &plans_, &rounds_),
      rows_(context_.get(), owner, workers, &table_, &mover_, &plans_,
            &rounds_) {
  MutexLock lock(&mu_);
  const auto& wanted = context_->options.device_workers;
  const auto found = wanted.find(workers->index());
  if (found == wanted.end()) return;
  workers_wanted_ = std::min(found->second, WorkerSet::kMaxMembers);
  looks_.store(workers_wanted_ > 1, std::memory_order_relaxed);
}

bool MultiWorkerDevice::AddMember(uint64_t needed_bytes, bool patiently) {
  const auto before_use = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    gate_.Close();
    captures_->RefuseAll(kSpansWorkers, "it uses a device that spans workers");
    looks_.store(true, std::memory_order_release);
    filling_ = workers_->count() - 1;
  };
  return patiently ? workers_->AddPatiently(needed_bytes, before_use)
                   : workers_->Add(needed_bytes, before_use);
}

void MultiWorkerDevice::Spread() {
  const int wanted = std::exchange(workers_wanted_, 1);
  while (workers_->count() < wanted &&
         AddMember(/*needed_bytes=*/0, /*patiently=*/false)) {
  }
  // The coordinator cuts the program's graphs once their cost is known. Until
  // then all calls go to one worker.
  filling_ = 0;
}

bool MultiWorkerDevice::Begins() {
  MutexLock lock(&mu_);
  if (workers_wanted_ > 1) Spread();
  if (begun()) return true;
  if (const int64_t left = workers_->RoomLeft(0); left < 0) {
    return AddMember(static_cast<uint64_t>(-left), /*patiently=*/true);
  }
  looks_.store(false, std::memory_order_release);
  return false;
}

bool MultiWorkerDevice::BeginsFor(uint64_t bytes) {
  MutexLock lock(&mu_);
  if (begun()) return true;
  if (!AddMember(bytes, /*patiently=*/false)) return false;
  // Notes that the first worker has no room beyond what counts there. The
  // refused upload's bytes already count, so the number of further bytes is 0.
  workers_->LearnRoom(0, 0);
  return true;
}

absl::Status MultiWorkerDevice::Record(uint32_t lane, Call* call) {
  MutexLock lock(&mu_);
  captures_->Add(lane, *call,
                 [this](RemoteStorage* storage) ABSL_NO_THREAD_SAFETY_ANALYSIS {
                   return table_.CopiesOf(storage).holders != 0;
                 });
  Routed routed;
  DJINN_RETURN_IF_ERROR(Route(lane, call, &routed));
  std::shared_ptr<const Rematerialization> rematerialization =
      mover_.rematerializer().RematerializationFor(*call, routed.named,
                                                   routed.member);
  DJINN_RETURN_IF_ERROR(workers_->at(routed.member).Record(lane, call));
  // The call may have been recorded in another mode.
  if (rematerialization != nullptr && !rematerialization->cheap() &&
      OtherModeWasUsed()) {
    rematerialization = nullptr;
  }
  return Settle(lane, routed, std::move(rematerialization));
}

absl::StatusOr<std::vector<ResultMetadata>> MultiWorkerDevice::RecordAndWait(
    uint32_t lane, Call* call) {
  MutexLock lock(&mu_);
  Routed routed;
  DJINN_RETURN_IF_ERROR(Route(lane, call, &routed));
  std::vector<const RemoteStorage*> copies;
  for (const Touch& touch : call->touches()) {
    copies.push_back(touch.storage.get());
  }
  auto results = workers_->at(routed.member).RecordAndWait(lane, call);
  // A call that failed on the worker poisoned its results, so their copies are
  // noted all the same. A call that the replica did not take changed nothing.
  if (!results.ok() && !IsRootError(results.status())) return results;
  for (size_t i = 0; i < routed.named.size(); ++i) {
    const NamedStorage& use = routed.named[i];
    if ((use.access & kCreates) == 0) continue;
    use.storage->set_size_bytes(copies[i]->size_bytes());
  }
  DJINN_RETURN_IF_ERROR(Settle(lane, routed));
  return results;
}

absl::Status MultiWorkerDevice::Upload(uint32_t lane, RemoteStorage* storage,
                                       const SharedBytes& source,
                                       absl::Status refusal) {
  MutexLock lock(&mu_);
  const auto size = static_cast<int64_t>(source.bytes.size());
  // The first replica may have refused the upload.
  const bool refused = !refusal.ok();
  StorageCopies& copies = table_.CopiesOf(storage);
  const bool tied = copies.holders != 0 && !refused;
  // Tries the replica that has the storage, or otherwise the one that took the
  // last uploads. Then tries others that may have room.
  const int first = tied ? table_.HomeOf(storage) : filling_;
  std::vector<int> order;
  if (tied || workers_->RoomToTry(first) >= size) order.push_back(first);
  for (int next = 1; next <= workers_->count(); ++next) {
    const int member = (filling_ + next) % workers_->count();
    if (member == first || (member == 0 && refused)) continue;
    if (workers_->RoomToTry(member) >= size) order.push_back(member);
  }
  bool asked = false;
  for (size_t i = 0;; ++i) {
    if (i == order.size()) {
      const int next = workers_->count();
      if (!std::exchange(asked, true) &&
          AddMember(source.bytes.size(), /*patiently=*/false)) {
        order.push_back(next);
      } else if (order.empty()) {
        // A worker, rather than the client, reports how much is missing.
        order.push_back(first);
      } else {
        return refusal;
      }
    }
    const int member = order[i];
    RemoteStorage* const copy = table_.CopyAt(storage, member);
    const absl::Status status = workers_->at(member).Upload(lane, copy, source);
    if (status.ok()) {
      if (!tied) {
        filling_ = member;
        table_.set_last(member);
      }
      const absl::Status written = table_.Wrote(lane, storage, member);
      workers_->UnlearnRoom(member);
      return written;
    }
    if (!LacksRoom(status)) return status;
    workers_->LearnRoom(member, size);
    if (copies.holders == 0) {
      // A read of the storage reports the failure.
      DJINN_RETURN_IF_ERROR(table_.Wrote(lane, storage, member));
    } else if (!copies.Holds(member)) {
      // The storage keeps its value where it had it.
      table_.DropCopy(storage, member);
    }
    refusal = status;
  }
}

absl::StatusOr<PullWork> MultiWorkerDevice::Offer(uint32_t lane,
                                                  RemoteStorage* storage) {
  MutexLock lock(&mu_);
  const int member = table_.HomeOf(storage);
  DJINN_ASSIGN_OR_RETURN(
      PullWork pull,
      workers_->at(member).Offer(lane, table_.CopyAt(storage, member)));
  table_.Count(storage, member);
  return pull;
}

absl::Status MultiWorkerDevice::Pull(uint32_t lane, RemoteStorage* storage,
                                     PullWork pull) {
  MutexLock lock(&mu_);
  const int member = table_.CopiesOf(storage).holders != 0
                         ? table_.HomeOf(storage)
                         : ChooseForBytes(storage->size_bytes());
  DJINN_RETURN_IF_ERROR(workers_->at(member).Pull(
      lane, table_.CopyAt(storage, member), std::move(pull)));
  return table_.Wrote(lane, storage, member);
}

absl::Status MultiWorkerDevice::Seed(uint32_t lane, RemoteStorage* generator,
                                     uint64_t seed) {
  MutexLock lock(&mu_);
  const int member = table_.HomeOf(generator);
  DJINN_RETURN_IF_ERROR(
      workers_->at(member).Seed(lane, table_.CopyAt(generator, member), seed));
  table_.CopiesOf(generator).generator = true;
  return table_.Wrote(lane, generator, member);
}

absl::Status MultiWorkerDevice::Resize(uint32_t lane, RemoteStorage* storage,
                                       uint64_t size_bytes) {
  MutexLock lock(&mu_);
  const uint64_t before = storage->size_bytes();
  if (table_.CopiesOf(storage).holders == 0) {
    DJINN_RETURN_IF_ERROR(workers_->first().failure());
    storage->set_size_bytes(size_bytes);
    return absl::OkStatus();
  }
  captures_->Refuse(lane, "RESIZES", "it resizes a tensor");
  const int member = table_.HomeOf(storage);
  // Notes the write before the resize, because the replicas still count the old
  // size.
  DJINN_RETURN_IF_ERROR(table_.Wrote(lane, storage, member));
  DJINN_RETURN_IF_ERROR(workers_->at(member).Resize(
      lane, table_.CopyAt(storage, member), size_bytes));
  table_.Resized(storage, before, size_bytes);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PendingRead>> MultiWorkerDevice::StartRead(
    uint32_t lane, RemoteStorage* storage, const srg::TensorView& view,
    void* destination, uint64_t bytes) {
  MutexLock lock(&mu_);
  const int member = table_.HomeOf(storage);
  auto read = workers_->at(member).StartRead(
      lane, table_.CopyAt(storage, member), view, destination, bytes);
  if (read.ok()) table_.Count(storage, member);
  return read;
}

absl::StatusOr<std::vector<StoragePtr>> MultiWorkerDevice::Replay(
    uint32_t lane, const std::shared_ptr<const CapturedGraph>& captured_graph,
    const std::shared_ptr<const RowShares>& shares,
    absl::Span<RemoteStorage* const> given) {
  MutexLock lock(&mu_);
  return rows_.Replay(lane, captured_graph, shares, given);
}

void MultiWorkerDevice::OnStages(const v1::StageAnswer& answer)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (answer.has_batch()) {
    rows_.OnAnswer(answer);
  } else {
    plans_.OnAnswer(answer);
  }
}

void MultiWorkerDevice::MarkDead(RemoteStorage* storage) {
  // A thread that rematerializes from the storage at this moment continues.
  HeldValue* const value = StorageCopies::Of(*storage)->value.get();
  if (value == nullptr || value->Die()) {
    CopyTable::Destroy(storage, workers_, &plans_);
  }
}

void MultiWorkerDevice::AddStatistics(Statistics* sum) const
    ABSL_NO_THREAD_SAFETY_ANALYSIS {
  mover_.rematerializer().AddStatistics(sum);
}

absl::Status MultiWorkerDevice::CheckOwn(const Call& call) const {
  for (const Touch& touch : call.touches()) {
    if (touch.storage->device().get() == owner_) continue;
    return MakeError(absl::StatusCode::kInvalidArgument, "MIXED_DEVICES",
                     "the call names storages of two virtual devices");
  }
  return absl::OkStatus();
}

absl::StatusOr<MultiWorkerDevice::Choice> MultiWorkerDevice::Choose(
    const Call& call) {
  std::array<int64_t, WorkerSet::kMaxMembers>
      lacks{};  // bytes that would have to move there
  std::array<int64_t, WorkerSet::kMaxMembers>
      takes{};  // bytes that it would hold in addition
  std::array<int64_t, WorkerSet::kMaxMembers>
      keeps{};  // bytes that a plan makes it keep
  int64_t all = 0;
  for (const Touch& touch : call.touches()) {
    StorageCopies& copies = table_.CopiesOf(touch.storage.get());
    const auto size = static_cast<int64_t>(touch.storage->size_bytes());
    if ((touch.access & kDraws) != 0) {
      copies.generator = true;
      // A state of unknown size cannot be read.
      if (size == 0) return Choice{copies.owner, false};
    }
    const bool needed =
        copies.holders != 0 &&
        !(IgnoresContents(touch.access) && ChangesVersion(touch.access));
    all += size;
    if (const int keeper = plans_.KeeperOf(*touch.storage.get(), &copies);
        keeper >= 0) {
      keeps[keeper] += std::max<int64_t>(size, 1);
    }
    for (int member = 0; member < workers_->count(); ++member) {
      if (needed && !copies.Holds(member)) {
        lacks[member] += copies.generator ? kGeneratorCost : size;
      }
      if (!copies.Counts(member)) takes[member] += size;
    }
  }
  const auto best = [&](auto fits) {
    int found = -1;
    for (int next = 0; next < workers_->count(); ++next) {
      const int member = (table_.last() + next) % workers_->count();
      if (!fits(member)) continue;
      if (found < 0 || lacks[member] < lacks[found]) found = member;
    }
    return found;
  };
  const auto has_room = [&](int member) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return takes[member] == 0 || workers_->RoomLeft(member) >= takes[member];
  };
  const auto keeper = std::max_element(keeps.begin(), keeps.end());
  const bool kept = *keeper > 0;
  const int wanted = kept ? static_cast<int>(keeper - keeps.begin())
                          : best([](int) { return true; });
  if (has_room(wanted)) return Choice{wanted, false, kept};
  const int elsewhere = best(has_room);
  if (elsewhere >= 0) return Choice{elsewhere, true};
  const int next = workers_->count();
  if (AddMember(static_cast<uint64_t>(all), /*patiently=*/true))
    return Choice{next, true};
  return Choice{wanted, false};
}

int MultiWorkerDevice::ChooseForBytes(uint64_t bytes) {
  const auto size = static_cast<int64_t>(bytes);
  for (int next = 0; next < workers_->count(); ++next) {
    const int member = (table_.last() + next) % workers_->count();
    if (workers_->RoomLeft(member) >= size) return member;
  }
  const int next = workers_->count();
  return AddMember(bytes, /*patiently=*/true) ? next : table_.last();
}

double MultiWorkerDevice::RemainingFrom(const Call& call, int member) {
  if (plans_.count() == 0) return StageOrder::kUnknown;
  absl::InlinedVector<const PlacedSlot*, 8> placed;
  for (const Touch& touch : call.touches()) {
    placed.push_back(&table_.CopiesOf(touch.storage.get()).placed);
  }
  const std::optional<StageOrder::Use> use = plans_.NextUse(placed);
  if (use.has_value()) {
    if (use->begins_run) rounds_.Begin();
    // A call that uses no storage of a plan counts with the previous calls on
    // the same replica, as it does in the plan.
    rounds_.set_remaining(member, use->remaining_seconds);
  }
  return rounds_.remaining(member);
}

absl::Status MultiWorkerDevice::Route(uint32_t lane, Call* call,
                                      Routed* routed) {
  DJINN_RETURN_IF_ERROR(CheckOwn(*call));
  std::optional<double> remaining;
  for (bool all_there = false; !all_there;) {
    DJINN_ASSIGN_OR_RETURN(const Choice choice, Choose(*call));
    routed->member = choice.member;
    if (!remaining.has_value()) remaining = RemainingFrom(*call, choice.member);
    // Terminates, because every further round has one plan less to follow.
    DJINN_ASSIGN_OR_RETURN(all_there,
                           BringAll(lane, *call, choice, *remaining, routed));
  }
  for (Touch& touch : call->touches()) {
    RemoteStorage* const copy =
        table_.CopyAt(touch.storage.get(), routed->member);
    routed->named.push_back({touch.storage, touch.access});
    touch.storage = StoragePtr(copy);
  }
  // The program continues on another replica, probably at the plan's next
  // stage, so the previous replica sends at once what it has recorded.
  // Otherwise the last stage would wait until the end. Without plans, the
  // replica changed because workers are short of room, and waiting may free
  // some of it.
  if (routed->member != table_.last() && plans_.count() > 0) {
    workers_->at(table_.last()).Ship(lane);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> MultiWorkerDevice::BringAll(uint32_t lane,
                                                 const Call& call,
                                                 const Choice& choice,
                                                 double remaining_seconds,
                                                 Routed* routed) {
  const int member = choice.member;
  absl::InlinedVector<RemoteStorage*, 8> brought;
  for (const Touch& touch : call.touches()) {
    RemoteStorage* const storage = touch.storage.get();
    StorageCopies& copies = table_.CopiesOf(storage);
    if (IgnoresContents(touch.access) && ChangesVersion(touch.access)) continue;
    if (copies.IsUnsure(member)) {
      DJINN_RETURN_IF_ERROR(mover_.MakeSure(lane, storage, member));
    }
    if (copies.holders == 0 || copies.Holds(member)) continue;
    // This thread waits for storages that must stay on that replica.
    const bool stays =
        choice.displaced || (choice.kept && copies.kept_by == member);
    if (stays) brought.push_back(storage);
    DJINN_RETURN_IF_ERROR(
        mover_.Bring(lane, storage, member,
                     stays ? StageOrder::kUnknown : remaining_seconds));
  }
  if (brought.empty()) return true;
  DJINN_ASSIGN_OR_RETURN(routed->unsound,
                         mover_.Move(lane, brought, member,
                                     /*told=*/!choice.displaced));
  if (routed->unsound.empty() || choice.displaced) return true;
  // The program did not ask for the plan, so the call continues without it.
  for (RemoteStorage* const storage : routed->unsound) {
    table_.DropCopy(storage, member);
    table_.ForgetKeeper(storage);
  }
  log::Warning("a worker does not take what it should keep",
               {{"device", workers_->index()},
                {"member", member},
                {"storages", routed->unsound.size()}});
  routed->unsound.clear();
  return false;
}

absl::Status MultiWorkerDevice::Settle(
    uint32_t lane, const Routed& routed,
    std::shared_ptr<const Rematerialization> rematerialization) {
  table_.set_last(routed.member);
  absl::Status status;
  for (const NamedStorage& use : routed.named) {
    if (ChangesVersion(use.access)) {
      status.Update(table_.Wrote(lane, use.storage.get(), routed.member));
      table_.CopiesOf(use.storage.get()).rematerialization = rematerialization;
    } else {
      // A storage that nothing had written is zero-filled there.
      table_.Count(use.storage.get(), routed.member);
    }
  }
  for (RemoteStorage* const storage : routed.unsound) {
    const StorageCopies& copies = table_.CopiesOf(storage);
    // If the call wrote the copy, it has the newest version and stays.
    if (copies.owner != routed.member) table_.DropCopy(storage, routed.member);
  }
  return status;
}

}  // namespace djinn
