#include "scheduler/semantics/context.h"

namespace djinn::semantics {

void Context::Table::Put(Key key, Origin origin) {
  const auto [it, added] = values_.try_emplace(key);
  if (added) {
    it->second.age = ages_.insert(ages_.end(), key);
  } else {
    ages_.splice(ages_.end(), ages_, it->second.age);
  }
  it->second.origin = origin;
  if (values_.size() <= kMaxValues) return;
  values_.erase(ages_.front());
  ages_.pop_front();
}

const Origin* Context::Table::Find(Key key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second.origin;
}

std::optional<Origin> Context::Find(const Table& table, Key key) const {
  const Origin* const found = table.Find(key);
  if (found == nullptr) return std::nullopt;
  Origin origin = *found;
  // Steps of a language model make values of equal sizes now and then; the
  // program goes from the one to the other only once.
  if (origin.phase == Phase::kLlmPrefill && last_ == Phase::kLlmDecode) {
    origin.phase = Phase::kLlmDecode;
  }
  return origin;
}

}  // namespace djinn::semantics
