#include "client_lib/session/multi_worker/worker_set.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/session/device/replica/replica.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"

namespace djinn {
namespace {

// Interval at which a device that is short of room requests more.
constexpr absl::Duration kPatience = absl::Seconds(1);
// Limit on the pause, which doubles each time a granted worker cannot be
// reached. It is long because all calls wait during an attempt, and the
// coordinator may have no other worker.
constexpr absl::Duration kLongestPatience = absl::Minutes(5);
// Time for which a worker's refusal keeps uploads away from it.
constexpr absl::Duration kRoomMemory = absl::Minutes(1);
// Time that the stream of a replica that did not join may take to end.
constexpr absl::Duration kStreamEndTimeout = absl::Seconds(5);

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

}  // namespace

WorkerSet::WorkerSet(int index, uint64_t incarnation,
                     std::shared_ptr<SessionContext> context)
    : index_(index),
      incarnation_(incarnation),
      context_(std::move(context)),
      patience_(absl::ZeroDuration(), context_->options.clock),
      long_patience_(patience_),
      pause_(kPatience) {}

void WorkerSet::Begin(VirtualDevice* owner, OnRepeat on_repeat) {
  owner_ = owner;
  on_repeat_ = std::move(on_repeat);
  members_[0] = NewMember(0, 0);
  first_ = members_[0].get();
  count_.store(1, std::memory_order_release);
}

std::shared_ptr<RemoteDevice> WorkerSet::NewMember(int member,
                                                   uint64_t needed_bytes) {
  ReplicaRole role;
  role.index = index_;
  role.member = member;
  role.incarnation = incarnation_;
  role.owner = owner_;
  role.needed_bytes = needed_bytes;
  role.used_bytes = &used_[member];
  // The owner holds this set and may be destroyed before its replicas.
  const std::weak_ptr<VirtualDevice> owner = owner_->weak_from_this();
  role.on_failure = [this, owner, member](const absl::Status& failure) {
    if (owner.lock() != nullptr) OnFailure(member, failure);
  };
  if (on_repeat_ != nullptr) {
    role.on_repeat = [this, owner, member](RepeatedGraph repeated) {
      const std::shared_ptr<VirtualDevice> held = owner.lock();
      if (held != nullptr) on_repeat_(member, std::move(repeated));
    };
  }
  return std::make_shared<RemoteDevice>(std::move(role), context_);
}

bool WorkerSet::Add(uint64_t needed_bytes,
                    absl::FunctionRef<void()> before_use) {
  const int number = count();
  {
    MutexLock lock(&mu_);
    if (number == kMaxMembers || !long_patience_.passed()) return false;
  }
  if (!first_->failure().ok()) return false;
  std::shared_ptr<RemoteDevice> member = NewMember(number, needed_bytes);
  const absl::StatusOr<DevicePlacement> placement = member->Placement();
  bool joins = false;
  if (placement.ok()) {
    MutexLock lock(&mu_);
    joins = !closing_;
    if (joins) {
      pause_ = kPatience;
      members_[number] = member;
      count_.store(number + 1, std::memory_order_release);
    }
  }
  if (!joins) {
    log::Info("a device finds no worker with more room",
              {{"device", index_}, {"why", placement.status()}});
    replica::State& state = member->state();
    replica::Stop(state);
    replica::Join(state, Deadline(kStreamEndTimeout, context_->options.clock));
    replica::Disconnect(state);
    if (!placement.ok()) replica::GiveLeaseBack(state, /*unreachable=*/true);
    NoteRefusal(replica::HasLease(state));
    return false;
  }
  log::Info("a device spans another worker", {{"device", index_},
                                              {"member", number},
                                              {"worker", placement->worker_id},
                                              {"reason", placement->reason}});
  for (int each = 0; each <= number; ++each) members_[each]->StayAtWorker();
  before_use();
  // A replica that failed before it was counted has not failed the others.
  for (int each = 0; each <= number; ++each) {
    const absl::Status failure = members_[each]->failure();
    if (!failure.ok()) OnFailure(each, failure);
  }
  return true;
}

bool WorkerSet::AddPatiently(uint64_t needed_bytes,
                             absl::FunctionRef<void()> before_use) {
  {
    MutexLock lock(&mu_);
    if (!patience_.passed()) return false;
  }
  return Add(needed_bytes, before_use);
}

void WorkerSet::NoteRefusal(bool had_lease) {
  Clock* const clock = context_->options.clock;
  MutexLock lock(&mu_);
  patience_ = Deadline(kPatience, clock);
  if (had_lease) {
    pause_ = std::min(2 * pause_, kLongestPatience);
    long_patience_ = Deadline(pause_, clock);
  } else {
    pause_ = kPatience;
  }
}

void WorkerSet::OnFailure(int member, const absl::Status& failure) {
  if (member >= count()) return;  // a replica that did not join
  for (int other = 0; other < count(); ++other) {
    if (other != member) members_[other]->FailWith(failure);
  }
}

bool WorkerSet::AddUsedByFirst(uint64_t bytes) {
  const auto size = static_cast<int64_t>(bytes);
  const int64_t used =
      used_[0].fetch_add(size, std::memory_order_relaxed) + size;
  return used <= 0 || static_cast<uint64_t>(used) <= first_->memory_bytes();
}

int64_t WorkerSet::RoomBelow(int64_t limit, int member) const {
  const auto own = static_cast<int64_t>(
      std::min<uint64_t>(members_[member]->memory_bytes(), kNoLimit));
  return std::min(own, limit) - used_[member].load(std::memory_order_relaxed);
}

int64_t WorkerSet::RoomLeft(int member) const {
  MutexLock lock(&mu_);
  return RoomBelow(learned_room_[member].bytes, member);
}

int64_t WorkerSet::RoomToTry(int member) const {
  const absl::Duration now = context_->options.clock->Monotonic();
  MutexLock lock(&mu_);
  const LearnedRoom& learned = learned_room_[member];
  return RoomBelow(now - learned.at < kRoomMemory ? learned.bytes : kNoLimit,
                   member);
}

void WorkerSet::LearnRoom(int member, int64_t more) {
  // The worker's own limit already explains the refusal. Otherwise other
  // sessions use its memory, and it has less room than its limit.
  if (RoomBelow(kNoLimit, member) < more) return;
  const int64_t used = used_[member].load(std::memory_order_relaxed);
  MutexLock lock(&mu_);
  learned_room_[member] = {std::max<int64_t>(used, 0) + more - 1,
                           context_->options.clock->Monotonic()};
}

void WorkerSet::UnlearnRoom(int member) {
  MutexLock lock(&mu_);
  LearnedRoom& learned = learned_room_[member];
  if (RoomBelow(learned.bytes, member) < 0) learned = LearnedRoom();
}

void WorkerSet::BeginClose() {
  {
    MutexLock lock(&mu_);
    closing_ = true;
  }
  for (const auto& member : all()) replica::BeginClose(member->state());
}

absl::StatusOr<DevicePlacement> WorkerSet::Placement() const {
  DJINN_ASSIGN_OR_RETURN(DevicePlacement sum, first_->Placement());
  for (int member = 1; member < count(); ++member) {
    DJINN_ASSIGN_OR_RETURN(const DevicePlacement one,
                           members_[member]->Placement());
    absl::StrAppend(&sum.worker_id, "+", one.worker_id);
    absl::StrAppend(&sum.reason, "; ", one.worker_id, ": ", one.reason);
    sum.memory_bytes += one.memory_bytes;
  }
  return sum;
}

}  // namespace djinn
