#include "gpu_worker/plan/bound_run.h"

#include <algorithm>
#include <limits>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "djinn/v1/execution.pb.h"

namespace djinn::worker {
namespace {

absl::Status Violation(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, "PROTOCOL_VIOLATION",
                   absl::StrCat("run: ", what));
}

bool IsCreated(const srg::Slot& slot) {
  return slot.kind == srg::Slot::Kind::kCreated ||
         slot.kind == srg::Slot::Kind::kResult;
}

// Iterates over ascending numbers below `end` that the message encodes as the
// gaps between them.
class Gaps {
 public:
  Gaps(const google::protobuf::RepeatedField<uint32_t>& gaps, size_t end)
      : gaps_(gaps), end_(end) {
    Advance();
  }

  // Returns `end` when there are no more.
  size_t next() const { return next_; }
  // Returns the index of next(), from 0.
  int index() const { return index_; }
  void Advance() {
    const size_t from = index_ < 0 ? 0 : next_ + 1;
    ++index_;
    if (index_ >= gaps_.size()) {
      next_ = end_;
    } else if (from >= end_ || gaps_[index_] >= end_ - from) {
      beyond_ = true;
      next_ = end_;
    } else {
      next_ = from + gaps_[index_];
    }
  }
  // Returns whether a number was not below `end`.
  bool beyond() const { return beyond_; }

 private:
  const google::protobuf::RepeatedField<uint32_t>& gaps_;
  const size_t end_;
  size_t next_ = 0;
  int index_ = -1;
  bool beyond_ = false;
};

// Checks that the message's lists have matching lengths.
absl::Status CheckLists(const v1::Run& message) {
  const v1::Repeat& repeat = message.repeat();
  const int slots = repeat.slot_gaps_size();
  if (message.bindings_size() > 0) {
    return Violation("a repeat says its bindings otherwise");
  }
  if (repeat.storages_size() != slots) {
    return Violation(absl::StrCat(repeat.storages_size(), " storages for ",
                                  slots, " slots of a repeat"));
  }
  if (repeat.base_versions_size() != slots && repeat.base_versions_size() > 0) {
    return Violation(absl::StrCat(repeat.base_versions_size(), " versions for ",
                                  slots, " slots of a repeat"));
  }
  if (message.float_holes_size() != repeat.float_gaps_size()) {
    return Violation(absl::StrCat(message.float_holes_size(), " floats for ",
                                  repeat.float_gaps_size(),
                                  " holes of a repeat"));
  }
  return absl::OkStatus();
}

absl::Status FillFloats(const v1::Run& message, const RememberedRun& before,
                        std::vector<double>* floats) {
  *floats = before.floats;
  Gaps holes(message.repeat().float_gaps(), floats->size());
  for (; holes.next() < floats->size(); holes.Advance()) {
    (*floats)[holes.next()] = message.float_holes(holes.index());
  }
  if (holes.beyond())
    return Violation("a repeat names a float hole there is not");
  return absl::OkStatus();
}

// Makes the bindings that a repeat does not list.
class Inherited {
 public:
  Inherited(const v1::Repeat& repeat, const RememberedRun& before,
            const StorageTable& storages)
      : repeat_(repeat),
        before_(before),
        storages_(storages),
        next_(repeat.first_new_storage()) {}

  absl::Status Bind(size_t slot, const srg::Slot& kind,
                    BoundRun::Binding* binding) {
    if (IsCreated(kind)) {
      if (next_ == 0 || next_ == std::numeric_limits<uint64_t>::max()) {
        return Violation("a repeat names no new storage for its results");
      }
      binding->storage = next_++;
      return absl::OkStatus();
    }
    binding->storage = before_.storages[slot];
    binding->existing = storages_.Find(binding->storage);
    if (binding->existing == nullptr) {
      return Violation(
          absl::StrCat("storage ", binding->storage, " does not exist"));
    }
    binding->base_version = binding->existing->version;
    versions_ += binding->base_version;
    return absl::OkStatus();
  }

  absl::Status Check() const {
    if (next_ == repeat_.first_new_storage() && next_ != 0) {
      return Violation("a repeat names new storages for no result");
    }
    if (versions_ == repeat_.version_sum()) return absl::OkStatus();
    return Violation(
        absl::StrCat("the versions of the storages that are bound as before "
                     "add up to ",
                     versions_, ", not ", repeat_.version_sum()));
  }

 private:
  const v1::Repeat& repeat_;
  const RememberedRun& before_;
  const StorageTable& storages_;
  uint64_t next_;
  uint64_t versions_ = 0;
};

absl::Status BindRepeat(const v1::Run& message, const Plan& plan,
                        const RememberedRun& before,
                        const StorageTable& storages, BoundRun* run) {
  const std::vector<srg::Slot>& slots = plan.graph().slots;
  const v1::Repeat& repeat = message.repeat();
  DJINN_RETURN_IF_ERROR(CheckLists(message));
  Inherited inherited(repeat, before, storages);
  Gaps listed(repeat.slot_gaps(), slots.size());
  uint64_t storage = 0;
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    BoundRun::Binding& binding = run->bindings.emplace_back();
    binding.writes = plan.facts().slots[slot].writes;
    binding.reads = plan.facts().slots[slot].reads;
    if (slot != listed.next()) {
      DJINN_RETURN_IF_ERROR(inherited.Bind(slot, slots[slot], &binding));
      continue;
    }
    storage += static_cast<uint64_t>(repeat.storages(listed.index()));
    binding.storage = storage;
    binding.base_version = repeat.base_versions_size() > 0
                               ? repeat.base_versions(listed.index())
                               : 1;
    binding.existing = storages.Find(storage);
    listed.Advance();
  }
  if (listed.beyond()) {
    return Violation("a repeat names a slot there is not");
  }
  DJINN_RETURN_IF_ERROR(inherited.Check());
  DJINN_RETURN_IF_ERROR(FillFloats(message, before, &run->floats));
  if (!repeat.same_final_slots()) {
    run->final_slots.assign(message.final_slots().begin(),
                            message.final_slots().end());
  } else if (message.final_slots_size() == 0) {
    run->final_slots = before.final_slots;
    run->same_final_slots = true;
  } else {
    return Violation("final slots of a repeat that has those of before");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status BindRun(const v1::Run& message, const Plan* plan,
                     absl::Span<const RememberedRun> remembered,
                     const StorageTable& storages, BoundRun* run) {
  run->message = &message;
  run->bindings.clear();
  run->final_slots.clear();
  run->floats.clear();
  run->same_final_slots = false;
  if (message.has_repeat()) {
    const uint32_t place = message.repeat().place();
    if (plan == nullptr || place >= remembered.size()) {
      return Violation("a repeat of a run that was not remembered");
    }
    return BindRepeat(message, *plan, remembered[place], storages, run);
  }
  for (const v1::Binding& said : message.bindings()) {
    run->bindings.push_back({said.storage(), said.base_version(), said.writes(),
                             said.reads(), storages.Find(said.storage())});
  }
  run->final_slots.assign(message.final_slots().begin(),
                          message.final_slots().end());
  run->floats.assign(message.float_holes().begin(),
                     message.float_holes().end());
  return absl::OkStatus();
}

Lifetimes LifetimesOf(const Plan& plan,
                      const std::vector<uint32_t>& final_slots) {
  Lifetimes lifetimes;
  // The bytes that each node creates, less the bytes that the node before
  // freed. The type is wide because a graph's sizes may add up to anything.
  std::vector<absl::int128> change(plan.steps().size() + 1, 0);
  for (size_t slot = 0; slot < plan.created_bytes().size(); ++slot) {
    change[plan.facts().slots[slot].first_node] += plan.created_bytes()[slot];
  }
  for (const uint32_t slot : final_slots) {
    const uint32_t last_node = plan.facts().slots[slot].last_node;
    lifetimes.ends.emplace_back(last_node, slot);
    change[last_node + 1] -= plan.created_bytes()[slot];
  }
  std::sort(lifetimes.ends.begin(), lifetimes.ends.end());
  absl::int128 live = 0;
  absl::int128 peak = 0;
  for (const absl::int128 bytes : change) {
    live += bytes;
    peak = std::max(peak, live);
  }
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  lifetimes.peak_bytes = peak > kMost ? kMost : static_cast<uint64_t>(peak);
  return lifetimes;
}

}  // namespace djinn::worker
