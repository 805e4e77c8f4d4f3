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

// Making must take at most this part of what fetching takes: it keeps a device
// from other work, and what it takes is a guess at best.
constexpr double kWorthIt = 0.5;
// Smaller values come sooner than a message, and are not weighed.
constexpr uint64_t kMinBytes = 16 << 10;
// The memory of a device's recipes together.
constexpr int64_t kMaxRecipeBytes = 16 << 20;

}  // namespace

std::shared_ptr<const Recipe> Rematerializer::RecipeFor(
    const Call& call, absl::Span<const NamedStorage> named, int member) {
  const bool cheap = IsCheap(call.operator_id());
  const bool repeatable =
      IsRepeatable(call.operator_id()) && !FastExecutionWasUsed();
  if (!cheap && !repeatable) return nullptr;
  std::vector<std::shared_ptr<const Recipe>> before;
  for (const NamedStorage& use : named) {
    const StorageCopies& copies = table_->CopiesOf(use.storage.get());
    if (copies.holders != 0) {
      before.push_back(copies.recipe);
      continue;
    }
    // Comes into being now, anywhere alike.
    auto zeros = std::make_shared<Recipe>();
    zeros->size_bytes = use.storage->size_bytes();
    before.push_back(std::move(zeros));
  }
  const uint64_t errors = context_->root_errors.count();
  if (cheap) {
    if (std::shared_ptr<Recipe> recipe = RecipeOf(call, before)) {
      recipe->errors_before = errors;
      for (const auto& made : recipe->before) {
        if (made == nullptr || made->calls == 0) continue;
        recipe->errors_before =
            std::min(recipe->errors_before, made->errors_before);
      }
      return recipe;
    }
  }
  if (!repeatable ||
      recipe_bytes_->load(std::memory_order_relaxed) >= kMaxRecipeBytes) {
    return nullptr;
  }
  std::vector<std::shared_ptr<HeldValue>> held;
  for (const NamedStorage& use : named) {
    StorageCopies& copies = table_->CopiesOf(use.storage.get());
    const bool holds = copies.holders != 0 && !ChangesVersion(use.access);
    held.push_back(holds ? copies.Value(use.storage.get()) : nullptr);
  }
  std::shared_ptr<Recipe> recipe =
      WeighedRecipeOf(call, std::move(before), std::move(held));
  if (recipe == nullptr) return nullptr;
  recipe->member = member;
  recipe->errors_before = errors;
  recipe_bytes_->fetch_add(recipe->footprint, std::memory_order_relaxed);
  recipe->footprints = recipe_bytes_;
  return recipe;
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
  std::shared_ptr<const Recipe> recipe = copies.recipe;
  const uint64_t errors = context_->root_errors.count();
  // What failed where it was made may not fail here, and is to be missing all
  // the same.
  if (recipe != nullptr && (recipe->size_bytes != storage->size_bytes() ||
                            recipe->errors_before != errors)) {
    recipe = nullptr;
  }
  if (recipe == nullptr || !recipe->cheap()) {
    if (storage->size_bytes() < kMinBytes) return false;
    if (recipe == nullptr || !IsWorthMaking(storage, *recipe, making)) {
      fetched_[static_cast<size_t>(making->why)].fetch_add(
          1, std::memory_order_relaxed);
      return false;
    }
  }
  // It is born there: not in what is left of an older version.
  const bool home = member == 0 && copies.at_home;
  if (home || copies.at[member]) table_->DropCopy(storage, member);
  DJINN_RETURN_IF_ERROR(
      Make(lane, *recipe, table_->CopyAt(storage, member), *making));
  copies.BecomeUnsure(member, errors);
  copies.makes |= 1u << member;
  table_->Count(storage, member);
  if (recipe->cheap()) return true;
  if (FastExecutionWasUsed()) {
    // Perhaps before it was recorded: then its bits may be others.
    table_->DropCopy(storage, member);
    return false;
  }
  made_again_.fetch_add(1, std::memory_order_relaxed);
  bytes_not_fetched_.fetch_add(storage->size_bytes(),
                               std::memory_order_relaxed);
  return true;
}

bool Rematerializer::IsWorthMaking(RemoteStorage* storage, const Recipe& recipe,
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
  if (!Weigh(recipe, making)) return false;
  making->why = Fetched::kNotWorthIt;
  const double fetching = static_cast<double>(storage->size_bytes()) / link;
  const bool make =
      making->seconds <= kWorthIt * fetching &&
      workers_->RoomLeft(member) >= static_cast<int64_t>(recipe.bytes);
  Explain(*storage, *making, fetching, make);
  return make;
}

bool Rematerializer::Weigh(const Recipe& recipe, Making* making) {
  if (recipe.calls == 0) return true;  // zeros, when it is born
  if (recipe.errors_before != context_->root_errors.count()) return false;
  if (!recipe.cheap()) {
    const std::string there = workers_->at(recipe.member).Facts().numerics;
    if (there.empty() || there != making->facts.numerics) {
      making->why = Fetched::kOtherBits;
      return false;
    }
  }
  making->seconds += SecondsOf(recipe.call, making->facts.speed);
  ++making->calls;
  for (uint32_t i = 0; i < recipe.before.size(); ++i) {
    if (!WeighOperand(recipe, i, making)) return false;
  }
  return true;
}

bool Rematerializer::WeighOperand(const Recipe& recipe, uint32_t touch,
                                  Making* making) {
  HeldValue* const value = recipe.cheap() ? nullptr : recipe.held[touch].get();
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
      // At most: it may be made again, too.
      making->seconds += static_cast<double>(bytes) / link;
      return true;
    }
  }
  if (recipe.before[touch] != nullptr) {
    return Weigh(*recipe.before[touch], making);
  }
  // Born by the call, or what it was made of is gone.
  return touch == recipe.made;
}

void Rematerializer::Unpin(Making* making) {
  for (const auto& [value, storage] : making->operands) {
    if (value->Unpin()) CopyTable::Destroy(storage.get(), workers_, plans_);
  }
  making->operands.clear();
}

absl::Status Rematerializer::Make(uint32_t lane, const Recipe& recipe,
                                  RemoteStorage* target, const Making& making) {
  if (recipe.calls == 0) return absl::OkStatus();  // zeros, when it is born
  const int member = making.member;
  Call call = recipe.call;
  std::vector<StoragePtr> made;
  absl::Status status;
  for (uint32_t i = 0; i < call.touches().size() && status.ok(); ++i) {
    const Recipe* const before = recipe.before[i].get();
    const auto operand = recipe.cheap()
                             ? making.operands.end()
                             : making.operands.find(recipe.held[i].get());
    RemoteStorage* storage = target;
    if (i != recipe.made && operand != making.operands.end()) {
      RemoteStorage* const held = operand->second.get();
      status = operands_->BringWhole(lane, held, member);
      storage = table_->CopyAt(held, member);
    } else if (i != recipe.made) {
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
      make ? "values are made again, not fetched"
           : "values are fetched, not made again",
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
  sum->values_made_again += made_again_.load(std::memory_order_relaxed);
  sum->bytes_not_fetched += bytes_not_fetched_.load(std::memory_order_relaxed);
  sum->fetched_not_repeatable += fetched(Fetched::kNotRepeatable);
  sum->fetched_other_bits += fetched(Fetched::kOtherBits);
  sum->fetched_not_measured += fetched(Fetched::kNotMeasured);
  sum->fetched_not_worth_it += fetched(Fetched::kNotWorthIt);
}

}  // namespace djinn
