#include "client_lib/session/structure_table.h"

namespace djinn {

StructureTable::Entry StructureTable::FindOrAdd(absl::string_view key) {
  const auto found = by_key_.find(key);
  if (found != by_key_.end()) {
    by_use_.splice(by_use_.begin(), by_use_, found->second);
    return {found->second->id, false, &found->second->told};
  }
  while (!by_use_.empty() && (by_use_.size() >= max_structures_ ||
                              key_bytes_ + key.size() > max_key_bytes_)) {
    DropLeastRecentlyUsed();
  }
  if (free_ids_.empty()) free_ids_.push_back(++last_id_);
  by_use_.push_front({std::string(key), free_ids_.back(), 0});
  free_ids_.pop_back();
  by_key_.emplace(by_use_.front().key, by_use_.begin());
  key_bytes_ += key.size();
  return {by_use_.front().id, true, &by_use_.front().told};
}

void StructureTable::DropLeastRecentlyUsed() {
  const Stored& last = by_use_.back();
  free_ids_.push_back(last.id);
  key_bytes_ -= last.key.size();
  by_key_.erase(last.key);
  by_use_.pop_back();
}

}  // namespace djinn
