#include "client_lib/session/structure_table.h"

#include <utility>

namespace djinn {

StructureTable::Entry StructureTable::FindOrAdd(absl::string_view key) {
  const auto found = by_key_.find(key);
  if (found != by_key_.end()) {
    by_use_.splice(by_use_.begin(), by_use_, found->second);
    return {found->second->id, false, &found->second->told};
  }
  while (!by_use_.empty() && (by_use_.size() >= max_structures_ ||
                              bytes_ + key.size() > max_bytes_)) {
    DropLeastRecentlyUsed();
  }
  by_use_.push_front({std::string(key), ++last_id_, 0, {}});
  by_key_.emplace(by_use_.front().key, by_use_.begin());
  bytes_ += key.size();
  return {by_use_.front().id, true, &by_use_.front().told};
}

void StructureTable::Keep(std::string definition) {
  bytes_ += definition.size();
  by_use_.front().definition = std::move(definition);
}

std::vector<uint64_t> StructureTable::Unsaid() const {
  std::vector<uint64_t> ids;
  for (const Dropped& dropped : dropped_) {
    if (dropped.said_in == 0) ids.push_back(dropped.id);
  }
  return ids;
}

void StructureTable::SaidIn(uint64_t sequence) {
  for (Dropped& dropped : dropped_) {
    if (dropped.said_in == 0) dropped.said_in = sequence;
  }
}

void StructureTable::Completed(uint64_t sequence) {
  while (!dropped_.empty() && dropped_.front().said_in != 0 &&
         dropped_.front().said_in <= sequence) {
    dropped_.pop_front();
  }
}

const std::string* StructureTable::Definition(uint64_t id) const {
  for (const Stored& stored : by_use_) {
    if (stored.id == id) return &stored.definition;
  }
  for (const Dropped& dropped : dropped_) {
    if (dropped.id == id) return &dropped.definition;
  }
  return nullptr;
}

void StructureTable::DropLeastRecentlyUsed() {
  Stored& last = by_use_.back();
  bytes_ -= last.key.size() + last.definition.size();
  by_key_.erase(last.key);
  dropped_.push_back({last.id, std::move(last.definition), 0});
  by_use_.pop_back();
}

}  // namespace djinn
