#include "scheduler/placement/fleet.h"

#include <algorithm>
#include <utility>

namespace djinn::scheduler {

void Fleet::CountMemory(uint64_t bytes, int change) {
  const auto it = memories_.try_emplace(bytes, 0).first;
  it->second += change;
  if (it->second == 0) memories_.erase(it);
}

void Fleet::Put(WorkerFacts facts) {
  std::unique_ptr<Member>& member = members_[facts.id];
  if (member == nullptr) {
    member = std::make_unique<Member>();
    member->place = all_.size();
    all_.push_back(member.get());
  } else {
    CountMemory(member->facts.memory_bytes, -1);
  }
  CountMemory(facts.memory_bytes, 1);
  member->facts = std::move(facts);
}

void Fleet::DropHeld(Member* member, StateKey key) {
  const auto found = holders_.find(key);
  std::vector<Member*>& holders = found->second;
  *std::find(holders.begin(), holders.end(), member) = holders.back();
  holders.pop_back();
  if (holders.empty()) holders_.erase(found);
}

void Fleet::SetHeld(absl::string_view id, absl::flat_hash_set<StateKey> held) {
  Member* const member = members_.at(id).get();
  for (const StateKey key : member->held) {
    if (!held.contains(key)) DropHeld(member, key);
  }
  for (const StateKey key : held) {
    if (!member->held.contains(key)) holders_[key].push_back(member);
  }
  member->held = std::move(held);
}

void Fleet::Hold(absl::string_view id, StateKey key) {
  Member* const member = members_.at(id).get();
  if (member->held.insert(key).second) holders_[key].push_back(member);
}

void Fleet::Release(absl::string_view id, StateKey key) {
  Member* const member = members_.at(id).get();
  if (member->held.erase(key) > 0) DropHeld(member, key);
}

void Fleet::Remove(absl::string_view id) {
  const auto found = members_.find(id);
  if (found == members_.end()) return;
  Member* const member = found->second.get();
  for (const StateKey key : member->held) DropHeld(member, key);
  CountMemory(member->facts.memory_bytes, -1);
  all_.back()->place = member->place;
  all_[member->place] = all_.back();
  all_.pop_back();
  members_.erase(found);
}

const Fleet::Member* Fleet::Find(absl::string_view id) const {
  const auto found = members_.find(id);
  return found == members_.end() ? nullptr : found->second.get();
}

absl::Span<Fleet::Member* const> Fleet::Holders(StateKey key) const {
  const auto found = holders_.find(key);
  if (found == holders_.end()) return {};
  return found->second;
}

}  // namespace djinn::scheduler
