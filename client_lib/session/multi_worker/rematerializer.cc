#include "client_lib/session/multi_worker/rematerializer.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/session/model/execution_flag.h"
#include "client_lib/session/model/repeatable.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"

namespace djinn {
namespace {

// Rematerialization may take at most this fraction of the time of a fetch,
// because it occupies the device and its time is only an estimate.
constexpr double kWorthIt = 0.5;
// Smaller values arrive sooner than a message and are not weighed.
constexpr uint64_t kMinBytes = 16 << 10;
// Limit on the memory of a device's rematerializations together.
constexpr int64_t kMaxRematerializationBytes = 16 << 20;

}  // namespace

std::shared_ptr<const Rematerialization> Rematerializer::RematerializationFor(
    const Call& call, absl::Span<const NamedStorage> named, int member) {
  const bool cheap = IsCheap(call.operator_id());
  const bool repeatable =
      IsRepeatable(call.operator_id()) && !OtherModeWasUsed();
  if (!cheap && !repeatable) return nullptr;
  std::vector<std::shared_ptr<const Rematerialization>> before;
  for (const NamedStorage& use : named) {
    const StorageCopies& copies = table_->CopiesOf(use.storage.get());
    if (copies.holders != 0) {
      before.push_back(copies.rematerialization);
      continue;
    }
    // The call creates the storage, zero-filled, on any replica.
    auto zeros = std::make_shared<Rematerialization>();
    zeros->size_bytes = use.storage->size_bytes();
    before.push_back(std::move(zeros));
  }
  const uint64_t errors = context_->root_errors.count();
  if (cheap) {
    if (std::shared_ptr<Rematerialization> rematerialization =
            RematerializationOf(call, before)) {
      rematerialization->errors_before = errors;
      for (const auto& made : rematerialization->before) {
        if (made == nullptr || made->calls == 0) continue;
        rematerialization->errors_before =
            std::min(rematerialization->errors_before, made->errors_before);
      }
      return rematerialization;
    }
  }
  if (!repeatable ||
      rematerialization_bytes_->load(std::memory_order_relaxed) >=
          kMaxRematerializationBytes) {
    return nullptr;
  }
  std::vector<std::shared_ptr<HeldValue>> held;
  for (const NamedStorage& use : named) {
    StorageCopies& copies = table_->CopiesOf(use.storage.get());
    const bool holds = copies.holders != 0 && !ChangesVersion(use.access);
    held.push_back(holds ? copies.Value(use.storage.get()) : nullptr);
  }
  std::shared_ptr<Rematerialization> rematerialization =
      WeighedRematerializationOf(call, std::move(before), std::move(held));
  if (rematerialization == nullptr) return nullptr;
  rematerialization->member = member;
  rematerialization->errors_before = errors;
  rematerialization_bytes_->fetch_add(rematerialization->footprint,
                                      std::memory_order_relaxed);
  rematerialization->footprints = rematerialization_bytes_;
  return rematerialization;
}

absl::StatusOr<bool> Rematerializer::TryMake(uint32_t lane,
                                             RemoteStorage* storage,
                                             int member) {
  Making making;
  making.member = member;
  const absl::StatusOr<bool> made = MakeIfWorthIt(lane, storage, &making);
  Unpin(&making);
  return made;
}

absl::StatusOr<bool> Rematerializer::MakeIfWorthIt(uint32_t lane,
                                                   RemoteStorage* storage,
                                                   Making* making) {
  StorageCopies& copies = table_->CopiesOf(storage);
  const int member = making->member;
  std::shared_ptr<const Rematerialization> rematerialization =
      copies.rematerialization;
  const uint64_t errors = context_->root_errors.count();
  // A value whose first computation failed might not fail here, but must be
  // missing here as well.
  if (rematerialization != nullptr &&
      (rematerialization->size_bytes != storage->size_bytes() ||
       rematerialization->errors_before != errors)) {
    rematerialization = nullptr;
  }
  if (rematerialization == nullptr || !rematerialization->cheap()) {
    if (storage->size_bytes() < kMinBytes) return false;
    if (rematerialization == nullptr ||
        !IsWorthMaking(storage, *rematerialization, making)) {
      fetched_[static_cast<size_t>(making->why)].fetch_add(
          1, std::memory_order_relaxed);
      return false;
    }
  }
  // The value must not be computed within a stale copy of an older version.
  const bool home = member == 0 && copies.at_home;
  if (home || copies.at[member]) table_->DropCopy(storage, member);
  DJINN_RETURN_IF_ERROR(
      Make(lane, *rematerialization, table_->CopyAt(storage, member), *making));
  copies.BecomeUnsure(member, errors);
  copies.makes |= 1u << member;
  table_->Count(storage, member);
  if (rematerialization->cheap()) return true;
  if (OtherModeWasUsed()) {
    // The call may have been recorded in another mode. The bits of a second
    // computation may then differ.
    table_->DropCopy(storage, member);
    return false;
  }
  rematerialized_.fetch_add(1, std::memory_order_relaxed);
  bytes_not_fetched_.fetch_add(storage->size_bytes(),
                               std::memory_order_relaxed);
  return true;
}

bool Rematerializer::IsWorthMaking(RemoteStorage* storage,
                                   const Rematerialization& rematerialization,
                                   Making* making) {
  const int member = making->member;
  const StorageCopies& copies = table_->CopiesOf(storage);
  making->facts = workers_->at(member).Facts();
  const double link = workers_->at(member).LinkFrom(
      workers_->at(copies.owner).Facts().worker_id);
  if (making->facts.speed.flops_per_second() <= 0 || link <= 0) {
    making->why = Fetched::kNotMeasured;
    return false;
  }
  if (!Weigh(rematerialization, making)) return false;
  making->why = Fetched::kNotWorthIt;
  const double fetching = static_cast<double>(storage->size_bytes()) / link;
  const bool make = making->seconds <= kWorthIt * fetching &&
                    workers_->RoomLeft(member) >=
                        static_cast<int64_t>(rematerialization.bytes);
  Explain(*storage, *making, fetching, make);
  return make;
}

bool Rematerializer::Weigh(const Rematerialization& rematerialization,
                           Making* making) {
  if (rematerialization.calls == 0) return true;  // zeros at its creation
  if (rematerialization.errors_before != context_->root_errors.count())
    return false;
  if (!rematerialization.cheap()) {
    const std::string there =
        workers_->at(rematerialization.member).Facts().numerics;
    if (there.empty() || there != making->facts.numerics) {
      making->why = Fetched::kOtherBits;
      return false;
    }
  }
  making->seconds += SecondsOf(rematerialization.call, making->facts.speed);
  ++making->calls;
  for (uint32_t i = 0; i < rematerialization.before.size(); ++i) {
    if (!WeighOperand(rematerialization, i, making)) return false;
  }
  return true;
}

bool Rematerializer::WeighOperand(const Rematerialization& rematerialization,
                                  uint32_t touch, Making* making) {
  HeldValue* const value =
      rematerialization.cheap() ? nullptr : rematerialization.held[touch].get();
  if (value != nullptr) {
    if (making->operands.contains(value)) return true;
    if (StoragePtr operand = value->Pin()) {
      const StorageCopies& copies = table_->CopiesOf(operand.get());
      const int member = making->member;
      const uint64_t bytes = operand->size_bytes();
      making->operands.emplace(value, std::move(operand));
      if (copies.Holds(member)) return true;
      const double link = workers_->at(member).LinkFrom(
          workers_->at(copies.owner).Facts().worker_id);
      if (link <= 0) {
        making->why = Fetched::kNotMeasured;
        return false;
      }
      // This is an upper bound, because the operand may be rematerialized, too.
      making->seconds += static_cast<double>(bytes) / link;
      return true;
    }
  }
  if (rematerialization.before[touch] != nullptr) {
    return Weigh(*rematerialization.before[touch], making);
  }
  // The call creates the storage, or the operand's value is gone.
  return touch == rematerialization.made;
}

void Rematerializer::Unpin(Making* making) {
  for (const auto& [value, storage] : making->operands) {
    if (value->Unpin()) CopyTable::Destroy(storage.get(), workers_, plans_);
  }
  making->operands.clear();
}

absl::Status Rematerializer::Make(uint32_t lane,
                                  const Rematerialization& rematerialization,
                                  RemoteStorage* target, const Making& making) {
  if (rematerialization.calls == 0)
    return absl::OkStatus();  // zeros at its creation
  const int member = making.member;
  Call call = rematerialization.call;
  std::vector<StoragePtr> made;
  absl::Status status;
  for (uint32_t i = 0; i < call.touches().size() && status.ok(); ++i) {
    const Rematerialization* const before = rematerialization.before[i].get();
    const auto operand =
        rematerialization.cheap()
            ? making.operands.end()
            : making.operands.find(rematerialization.held[i].get());
    RemoteStorage* storage = target;
    if (i != rematerialization.made && operand != making.operands.end()) {
      RemoteStorage* const held = operand->second.get();
      status = operands_->BringWhole(lane, held, member);
      storage = table_->CopyAt(held, member);
    } else if (i != rematerialization.made) {
      storage = made.emplace_back(table_->NewPart(before->size_bytes)).get();
      status = Make(lane, *before, storage, making);
    } else if (before != nullptr) {
      status = Make(lane, *before, storage, making);
    }
    call.touches()[i].storage = StoragePtr(storage);
  }
  if (status.ok()) status = workers_->at(member).Record(lane, &call);
  if (status.ok()) workers_->at(member).CountRecomputed();
  for (const StoragePtr& operand : made) {
    workers_->at(member).MarkDead(operand.get());
  }
  return status;
}

void Rematerializer::Explain(const RemoteStorage& storage, const Making& making,
                             double fetching_seconds, bool make) {
  const uint32_t bit = 1u << making.member;
  if (((makes_ & bit) != 0) == make) return;
  makes_ ^= bit;
  log::Info(
      make ? "values are rematerialized, not fetched"
           : "values are fetched, not rematerialized",
      {{"device", workers_->index()},
       {"worker", making.facts.worker_id},
       {"bytes", storage.size_bytes()},
       {"fetching", absl::FormatDuration(absl::Seconds(fetching_seconds))},
       {"making", absl::FormatDuration(absl::Seconds(making.seconds))},
       {"calls", making.calls}});
}

void Rematerializer::AddStatistics(Statistics* sum) const {
  const auto fetched = [&](Fetched why) {
    return fetched_[static_cast<size_t>(why)].load(std::memory_order_relaxed);
  };
  sum->values_rematerialized += rematerialized_.load(std::memory_order_relaxed);
  sum->bytes_not_fetched += bytes_not_fetched_.load(std::memory_order_relaxed);
  sum->fetched_not_repeatable += fetched(Fetched::kNotRepeatable);
  sum->fetched_other_bits += fetched(Fetched::kOtherBits);
  sum->fetched_not_measured += fetched(Fetched::kNotMeasured);
  sum->fetched_not_worth_it += fetched(Fetched::kNotWorthIt);
}

}  // namespace djinn
