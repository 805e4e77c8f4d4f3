#include "scheduler/placement/candidates.h"

#include <algorithm>

namespace djinn::scheduler {

uint64_t Draw(Randomness* random, uint64_t bound) {
  // The high half of the product is uniform up to bound / 2^64.
  return static_cast<uint64_t>(
      (static_cast<unsigned __int128>((*random)()) * bound) >> 64);
}

CandidateWalk::CandidateWalk(const Fleet* fleet, const Request& request,
                             Randomness* random)
    : fleet_(fleet), random_(random) {
  if (!request.kept_for_this.empty()) {
    const Fleet::Member* const kept = fleet->Find(request.kept_for_this);
    if (kept != nullptr) {
      seen_.insert(kept);
      first_.push_back(kept);
    }
  }
  FindHolders(request);
}

void CandidateWalk::FindHolders(const Request& request) {
  std::vector<Request::State> state = request.state;
  std::sort(state.begin(), state.end(), [](const auto& a, const auto& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.key < b.key;
  });
  const size_t most = first_.size() + kMaxHolders;
  for (const Request::State& piece : state) {
    const absl::Span<Fleet::Member* const> holders = fleet_->Holders(piece.key);
    if (holders.empty()) continue;
    // When more workers hold it than are looked at, starts at a random one.
    const size_t begin = Draw(random_, holders.size());
    for (size_t i = 0; i < std::min(holders.size(), kMaxHolders); ++i) {
      if (first_.size() == most) return;
      const Fleet::Member* const holder = holders[(begin + i) % holders.size()];
      if (seen_.insert(holder).second) first_.push_back(holder);
    }
  }
}

CandidateWalk::Candidate CandidateWalk::Next() {
  if (next_first_ < first_.size()) return {first_[next_first_++], true};
  while (shuffled_ < fleet_->size()) {
    const size_t last = shuffled_;
    const size_t drawn = last + Draw(random_, fleet_->size() - last);
    ++shuffled_;
    const auto at = [this](size_t place) {
      const auto found = moved_.find(place);
      return found == moved_.end() ? place : found->second;
    };
    const size_t chosen = at(drawn);
    moved_[drawn] = at(last);
    const Fleet::Member* const member = fleet_->all()[chosen];
    if (!seen_.contains(member)) return {member, false};
  }
  return {};
}

}  // namespace djinn::scheduler
