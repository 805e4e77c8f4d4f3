#include "scheduler/semantics/context.h"

namespace djinn::semantics {

void Context::Remember(srg::DataType type, uint64_t bytes, Origin origin) {
  const Key key(type, bytes);
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

std::optional<Context::Origin> Context::Find(srg::DataType type,
                                             uint64_t bytes) const {
  const auto found = values_.find(Key(type, bytes));
  if (found == values_.end()) return std::nullopt;
  return found->second.origin;
}

}  // namespace djinn::semantics
