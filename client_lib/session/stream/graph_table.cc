#include "client_lib/session/stream/graph_table.h"

#include <utility>

#include "common/srg/validate.h"

namespace djinn {

std::optional<GraphTable::Entry> GraphTable::Find(absl::string_view key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  by_use_.splice(by_use_.begin(), by_use_, found->second);
  Stored& stored = *found->second;
  return Entry{stored.id,          false,
               ++stored.uses,      &stored.sent_epoch,
               &stored.remembered, &stored.definition};
}

GraphTable::Entry GraphTable::Add(absl::string_view key) {
  while (!by_use_.empty() &&
         (by_use_.size() >= max_graphs_ || bytes_ + key.size() > max_bytes_)) {
    DropLeastRecentlyUsed();
  }
  Stored& stored = by_use_.emplace_front();
  stored.key = std::string(key);
  stored.id = ++last_id_;
  by_key_.emplace(stored.key, by_use_.begin());
  by_id_.emplace(stored.id, by_use_.begin());
  bytes_ += key.size();
  return {stored.id,          true,
          ++stored.uses,      &stored.sent_epoch,
          &stored.remembered, &stored.definition};
}

GraphTable::Entry GraphTable::FindOrAdd(absl::string_view key) {
  const std::optional<Entry> found = Find(key);
  return found.has_value() ? *found : Add(key);
}

void GraphTable::Admitted(uint64_t id) {
  const auto found = by_id_.find(id);
  if (found != by_id_.end()) found->second->admitted = true;
}

bool GraphTable::Remember(uint64_t id, size_t slots_and_floats) {
  Stored& stored = *by_id_.at(id);
  std::vector<RememberedRun>& runs = stored.remembered.runs;
  const size_t room =
      runs.empty() ? srg::kMaxRememberedSlots : srg::kMaxRememberedSlots / 2;
  if (!stored.admitted || runs.size() == srg::kMaxRememberedRuns ||
      remembered_slots_ + slots_and_floats > room) {
    return false;
  }
  remembered_slots_ += slots_and_floats;
  stored.remembered_slots += slots_and_floats;
  runs.emplace_back();
  return true;
}

void GraphTable::Keep(std::string message, std::string fingerprint) {
  bytes_ += message.size();
  by_use_.front().definition = std::make_shared<const GraphDefinition>(
      GraphDefinition{std::move(message), std::move(fingerprint)});
}

uint64_t GraphTable::AddPassing(
    std::shared_ptr<const GraphDefinition> definition) {
  dropped_.push_back({++last_id_, std::move(definition), 0, 0});
  return last_id_;
}

std::vector<uint64_t> GraphTable::Unsaid() const {
  std::vector<uint64_t> ids;
  for (const Dropped& dropped : dropped_) {
    if (dropped.said_in == 0) ids.push_back(dropped.id);
  }
  return ids;
}

void GraphTable::SaidIn(uint64_t sequence) {
  for (Dropped& dropped : dropped_) {
    if (dropped.said_in != 0) continue;
    dropped.said_in = sequence;
    remembered_slots_ -= dropped.remembered_slots;
  }
}

void GraphTable::Completed(uint64_t sequence) {
  while (!dropped_.empty() && dropped_.front().said_in != 0 &&
         dropped_.front().said_in <= sequence) {
    dropped_.pop_front();
  }
}

const std::string* GraphTable::Definition(uint64_t id) const {
  const auto found = by_id_.find(id);
  const GraphDefinition* definition = nullptr;
  if (found != by_id_.end()) definition = found->second->definition.get();
  for (const Dropped& dropped : dropped_) {
    if (dropped.id == id) definition = dropped.definition.get();
  }
  return definition == nullptr ? nullptr : &definition->message;
}

void GraphTable::DropLeastRecentlyUsed() {
  Stored& last = by_use_.back();
  bytes_ -= last.key.size();
  if (last.definition != nullptr) bytes_ -= last.definition->message.size();
  by_key_.erase(last.key);
  by_id_.erase(last.id);
  dropped_.push_back(
      {last.id, std::move(last.definition), 0, last.remembered_slots});
  by_use_.pop_back();
}

}  // namespace djinn
