// The members of a virtual device: how they come, what room they have, and
// their end.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/session/fork_guard.h"
#include "client_lib/session/spanning_device.h"
#include "common/log/log.h"
#include "common/status_macros.h"

namespace djinn {
namespace {

// How often a device that is short of room asks for more of it.
constexpr absl::Duration kPatience = absl::Seconds(1);
// Twice as long after every worker that was given and not reached, up to this:
// all calls wait while it is tried, and the coordinator may have no other.
constexpr absl::Duration kLongestPatience = absl::Minutes(5);
// How long a worker's refusal keeps uploads away from it.
constexpr absl::Duration kRoomMemory = absl::Minutes(1);
// How long the stream of a member that was not to be may take to end.
constexpr absl::Duration kStreamEndTimeout = absl::Seconds(5);

}  // namespace

std::shared_ptr<SpanningDevice> SpanningDevice::Make(
    int index, std::shared_ptr<SessionContext> context) {
  std::shared_ptr<SpanningDevice> device(
      new SpanningDevice(index, std::move(context)));
  device->members_[0] = device->NewMember(0, 0);
  device->first_ = device->members_[0].get();
  device->count_.store(1, std::memory_order_release);
  return device;
}

SpanningDevice::SpanningDevice(int index,
                               std::shared_ptr<SessionContext> context)
    : index_(index),
      context_(std::move(context)),
      patience_(absl::ZeroDuration(), context_->options.clock),
      long_patience_(patience_),
      pause_(kPatience) {
  MutexLock lock(&mu_);
  remaining_.fill(StageOrder::kUnknown);
  const auto& workers = context_->options.device_workers;
  if (const auto found = workers.find(index_); found != workers.end()) {
    workers_wanted_ = std::min(found->second, kMaxMembers);
    looks_.store(workers_wanted_ > 1, std::memory_order_relaxed);
  }
}

std::shared_ptr<RemoteDevice> SpanningDevice::NewMember(int member,
                                                        uint64_t needed_bytes) {
  RemoteDevice::Role role;
  role.index = index_;
  role.member = member;
  role.owner = this;
  role.needed_bytes = needed_bytes;
  role.used_bytes = &used_[member];
  role.on_failure = [weak = weak_from_this(),
                     member](const absl::Status& failure) {
    const auto device = std::static_pointer_cast<SpanningDevice>(weak.lock());
    if (device != nullptr) device->OnFailure(member, failure);
  };
  if (context_->options.device_workers.contains(index_)) {
    role.on_repeat = [weak = weak_from_this(),
                      member](RemoteDevice::RepeatedStructure repeated) {
      const auto device = std::static_pointer_cast<SpanningDevice>(weak.lock());
      if (device != nullptr) device->OnRepeat(member, std::move(repeated));
    };
  }
  return std::make_shared<RemoteDevice>(std::move(role), context_);
}

bool SpanningDevice::AddMember(uint64_t needed_bytes) {
  const int number = count();
  if (number == kMaxMembers || !long_patience_.passed() ||
      !first_->failure().ok()) {
    return false;
  }
  std::shared_ptr<RemoteDevice> member = NewMember(number, needed_bytes);
  const absl::StatusOr<DevicePlacement> placement = member->Placement();
  bool joins = false;
  if (placement.ok()) {
    MutexLock lock(&members_mu_);
    joins = !closing_;
    if (joins) {
      members_[number] = member;
      count_.store(number + 1, std::memory_order_release);
    }
  }
  if (!joins) {
    log::Info("a device finds no worker with more room",
              {{"device", index_}, {"why", placement.status()}});
    member->Stop();
    member->Join(Deadline(kStreamEndTimeout, context_->options.clock));
    member->Disconnect();
    if (!placement.ok()) member->GiveLeaseBack(/*unreachable=*/true);
    Clock* const clock = context_->options.clock;
    patience_ = Deadline(kPatience, clock);
    if (member->HasLease()) {
      pause_ = std::min(2 * pause_, kLongestPatience);
      long_patience_ = Deadline(pause_, clock);
    } else {
      pause_ = kPatience;
    }
    return false;
  }
  pause_ = kPatience;
  log::Info("a device spans another worker", {{"device", index_},
                                              {"member", number},
                                              {"worker", placement->worker_id},
                                              {"reason", placement->reason}});
  for (int each = 0; each <= number; ++each) members_[each]->BeginToSpan();
  spans_.store(true, std::memory_order_release);
  looks_.store(true, std::memory_order_release);
  filling_ = number;
  // One that failed before it was known here has told nobody.
  for (int each = 0; each <= number; ++each) {
    const absl::Status failure = members_[each]->failure();
    if (!failure.ok()) OnFailure(each, failure);
  }
  return true;
}

bool SpanningDevice::AddMemberPatiently(uint64_t needed_bytes) {
  return patience_.passed() && AddMember(needed_bytes);
}

bool SpanningDevice::SpansNow() {
  if (workers_wanted_ > 1) Spread();
  if (spans()) return true;
  if (const int64_t left = RoomLeft(0); left < 0) {
    return AddMemberPatiently(static_cast<uint64_t>(-left));
  }
  looks_.store(false, std::memory_order_release);
  return false;
}

void SpanningDevice::OnFailure(int member, const absl::Status& failure) {
  if (member >= count()) return;  // one that was not to be
  for (int other = 0; other < count(); ++other) {
    if (other != member) members_[other]->FailWith(failure);
  }
}

int64_t SpanningDevice::RoomBelow(int64_t limit, int member) const {
  const auto own = static_cast<int64_t>(std::min<uint64_t>(
      members_[member]->memory_bytes(), std::numeric_limits<int64_t>::max()));
  return std::min(own, limit) - used_[member].load(std::memory_order_relaxed);
}

int64_t SpanningDevice::RoomLeft(int member) const {
  return RoomBelow(learnt_room_[member].bytes, member);
}

int64_t SpanningDevice::RoomToTry(int member) const {
  const LearntRoom& learnt = learnt_room_[member];
  const absl::Duration now = context_->options.clock->Monotonic();
  if (now - learnt.at < kRoomMemory) return RoomLeft(member);
  return RoomBelow(LearntRoom().bytes, member);
}

void SpanningDevice::LearnRoom(int member, int64_t more) {
  // Its own limit explains the rest. Others share the worker's memory, and how
  // much they leave may be less already.
  if (RoomBelow(LearntRoom().bytes, member) < more) return;
  const int64_t used = used_[member].load(std::memory_order_relaxed);
  learnt_room_[member] = {std::max<int64_t>(used, 0) + more - 1,
                          context_->options.clock->Monotonic()};
}

void SpanningDevice::UnlearnRoom(int member) {
  if (RoomLeft(member) < 0) learnt_room_[member] = LearntRoom();
}

std::vector<std::shared_ptr<RemoteDevice>> SpanningDevice::Members() const {
  return {members_.begin(), members_.begin() + count()};
}

void SpanningDevice::BeginClose() {
  {
    MutexLock lock(&members_mu_);
    closing_ = true;
  }
  for (const auto& member : Members()) member->BeginClose();
}

absl::StatusOr<DevicePlacement> SpanningDevice::Placement() {
  if (IsForkedChild()) return AfterForkError();
  DJINN_ASSIGN_OR_RETURN(DevicePlacement all, first_->Placement());
  for (int member = 1; member < count(); ++member) {
    DJINN_ASSIGN_OR_RETURN(const DevicePlacement one,
                           members_[member]->Placement());
    absl::StrAppend(&all.worker_id, "+", one.worker_id);
    absl::StrAppend(&all.reason, "; ", one.worker_id, ": ", one.reason);
    all.memory_bytes += one.memory_bytes;
  }
  return all;
}

}  // namespace djinn
