#include "scheduler/semantics/patterns/pattern.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "scheduler/semantics/patterns/patterns.h"

namespace djinn::semantics {

bool Region::HasTrait(absl::string_view trait) const {
  return absl::c_linear_search(traits, trait);
}

void Regions::Add(Region region) {
  std::stable_sort(
      region.members.begin(), region.members.end(),
      [](const Member& a, const Member& b) { return a.node < b.node; });
  std::vector<Member> taken;
  const int index = static_cast<int>(regions_.size());
  for (Member& member : region.members) {
    if (!IsFree(member.node)) continue;
    region_of_[member.node] = index;
    taken.push_back(std::move(member));
  }
  if (taken.empty()) return;
  region.members = std::move(taken);
  regions_.push_back(std::move(region));
}

void Regions::Join(int region, Member member) {
  region_of_[member.node] = region;
  std::vector<Member>& members = regions_[region].members;
  const auto place = std::lower_bound(
      members.begin(), members.end(), member.node,
      [](const Member& each, int node) { return each.node < node; });
  members.insert(place, std::move(member));
}

void Regions::Rename(int region, const std::string& pattern) {
  regions_[region].pattern = pattern;
  for (Member& member : regions_[region].members) {
    member.role = pattern + member.role.substr(member.role.find('.'));
  }
}

absl::string_view Regions::role(int node) const {
  if (IsFree(node)) return {};
  const std::vector<Member>& members = regions_[region_of_[node]].members;
  return std::lower_bound(members.begin(), members.end(), node,
                          [](const Member& member, int wanted) {
                            return member.node < wanted;
                          })
      ->role;
}

absl::string_view Regions::pattern(int node) const {
  return IsFree(node) ? absl::string_view()
                      : absl::string_view(regions_[region_of_[node]].pattern);
}

absl::Span<const Pattern* const> AllPatterns() {
  static const Pattern* const kAll[] = {
      &OptimizerPattern(),   &LossPattern(),        &BackwardPattern(),
      &KvCachePattern(),     &SpelledNormPattern(), &AttentionPattern(),
      &MoePattern(),         &RecurrentPattern(),   &EmbeddingPattern(),
      &ConvolutionPattern(), &NormPattern(),        &FusionPattern(),
      &MlpPattern(),
  };
  return kAll;
}

}  // namespace djinn::semantics
