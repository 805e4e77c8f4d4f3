#include "scheduler/quota/quota_tree.h"

#include <algorithm>
#include <utility>

namespace djinn::scheduler {
namespace {

constexpr Amounts kNothing = {};

size_t Index(Resource resource) { return static_cast<size_t>(resource); }

}  // namespace

absl::string_view ResourceName(Resource resource) {
  switch (resource) {
    case Resource::kMemoryBytes:
      return "memory_bytes";
    case Resource::kContentBytes:
      return "content_bytes";
    case Resource::kStorageBytes:
      return "storage_bytes";
    case Resource::kCacheBytes:
      return "cache_bytes";
    case Resource::kOutstandingMessages:
      return "outstanding_messages";
  }
  return "";
}

int64_t QuotaTree::Guaranteed(const Node& node, size_t resource) {
  const Quota& quota = node.quotas[resource];
  if (!quota.limited() || node.parent == nullptr) return quota.nominal;
  if (!quota.lending_limit.has_value()) return 0;
  return std::max<int64_t>(0, quota.nominal - *quota.lending_limit);
}

int64_t QuotaTree::UsedOfParent(const Node& node, size_t resource) {
  return std::max<int64_t>(0, node.used[resource] - Guaranteed(node, resource));
}

int64_t QuotaTree::Available(const Node& node, size_t resource) {
  const Quota& quota = node.quotas[resource];
  if (node.parent == nullptr) return quota.nominal - node.used[resource];
  const int64_t guaranteed = Guaranteed(node, resource);
  int64_t others = Available(*node.parent, resource);
  if (quota.borrowing_limit.has_value()) {
    others =
        std::min(others, quota.nominal - guaranteed + *quota.borrowing_limit -
                             UsedOfParent(node, resource));
  }
  return std::max<int64_t>(0, guaranteed - node.used[resource]) + others;
}

int64_t QuotaTree::Potential(const Node& node, size_t resource) {
  const Quota& quota = node.quotas[resource];
  if (node.parent == nullptr) return quota.nominal;
  const int64_t all =
      Guaranteed(node, resource) + Potential(*node.parent, resource);
  if (!quota.borrowing_limit.has_value()) return all;
  return std::min(all, quota.nominal + *quota.borrowing_limit);
}

double QuotaTree::ShareOf(const Node& node, const Amounts& more,
                          const Amounts& asked) {
  if (node.parent == nullptr) return 0;
  double share = 0;
  for (size_t i = 0; i < kResources; ++i) {
    const int64_t borrowed = node.used[i] + more[i] - node.quotas[i].nominal;
    if (asked[i] == 0 || borrowed <= 0) continue;
    share = std::max(share, static_cast<double>(borrowed) /
                                static_cast<double>(std::max<int64_t>(
                                    1, Potential(*node.parent, i))));
  }
  return share / node.weight;
}

void QuotaTree::Change(Node* node, size_t resource, int64_t amount) {
  const int64_t before = UsedOfParent(*node, resource);
  node->used[resource] += amount;
  const int64_t after = UsedOfParent(*node, resource);
  if (node->parent != nullptr && after != before) {
    Change(node->parent, resource, after - before);
  }
}

QuotaTree::Node* QuotaTree::Cohort(const std::string& name) {
  if (name.empty()) return nullptr;
  std::unique_ptr<Node>& cohort = cohorts_[name];
  if (cohort == nullptr) {
    cohort = std::make_unique<Node>();
    cohort->name = name;
    for (Quota& quota : cohort->quotas) quota.nominal = 0;
    const size_t slash = name.rfind('/');
    Node* const made = cohort.get();
    made->parent =
        Cohort(slash == std::string::npos ? "" : name.substr(0, slash));
    if (made->parent != nullptr) made->parent->children.push_back(made);
  }
  return cohorts_.at(name).get();
}

const QuotaTree::Node* QuotaTree::Find(absl::string_view tenant) const {
  const auto found = tenants_.find(tenant);
  return found == tenants_.end() ? nullptr : found->second.get();
}

void QuotaTree::Configure(const std::vector<TenantQuota>& tenants,
                          const std::vector<CohortQuota>& cohorts) {
  const auto before = std::exchange(tenants_, {});
  cohorts_.clear();
  for (const TenantQuota& tenant : tenants) {
    auto node = std::make_unique<Node>();
    node->name = tenant.tenant;
    node->parent = Cohort(tenant.cohort);
    node->weight = tenant.weight;
    node->quotas = tenant.quotas;
    if (node->parent != nullptr) node->parent->children.push_back(node.get());
    tenants_[tenant.tenant] = std::move(node);
  }
  for (const CohortQuota& cohort : cohorts) {
    Node* const node = Cohort(cohort.cohort);
    node->weight = cohort.weight;
    for (size_t i = 0; i < kResources; ++i) {
      if (!cohort.quotas[i].limited()) continue;
      node->quotas[i] = cohort.quotas[i];
      node->own[i] = cohort.quotas[i].nominal;
    }
  }
  // Goes backwards, because a cohort comes before its members by name.
  for (auto it = cohorts_.rbegin(); it != cohorts_.rend(); ++it) {
    Node* const cohort = it->second.get();
    for (const Node* const child : cohort->children) {
      for (size_t i = 0; i < kResources; ++i) {
        cohort->quotas[i].nominal +=
            child->quotas[i].nominal - Guaranteed(*child, i);
      }
    }
  }
  for (const auto& [name, node] : before) {
    if (node->used != kNothing) Take(name, node->used);
  }
}

std::optional<QuotaTree::Breach> QuotaTree::Check(absl::string_view tenant,
                                                  const Amounts& asked) const {
  const Node* const node = Find(tenant);
  if (node == nullptr) return std::nullopt;
  std::optional<Breach> breach;
  for (size_t i = 0; i < kResources; ++i) {
    if (asked[i] <= Available(*node, i) || asked[i] == 0) continue;
    const int64_t used = node->used[i];
    const int64_t ever = Potential(*node, i);
    const bool may_wait = used + asked[i] <= ever;
    // Prefers a breach that waiting does not resolve.
    if (breach.has_value() && (may_wait || !breach->may_wait)) continue;
    breach = {
        static_cast<Resource>(i),
        may_wait ? used + std::max<int64_t>(0, Available(*node, i)) : ever,
        used, asked[i], may_wait};
  }
  return breach;
}

void QuotaTree::Take(const std::string& tenant, const Amounts& amounts) {
  std::unique_ptr<Node>& node = tenants_[tenant];
  if (node == nullptr) {
    node = std::make_unique<Node>();
    node->name = tenant;
  }
  for (size_t i = 0; i < kResources; ++i) Change(node.get(), i, amounts[i]);
}

void QuotaTree::Give(const std::string& tenant, const Amounts& amounts) {
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end()) return;
  for (size_t i = 0; i < kResources; ++i) {
    Change(found->second.get(), i, -amounts[i]);
  }
}

const QuotaTree::Node* QuotaTree::Borrower(
    const Node& node, const Amounts& resource,
    const std::set<std::string>& spared) {
  if (node.children.empty()) {
    return spared.contains(node.name) ? nullptr : &node;
  }
  std::vector<std::pair<double, const Node*>> by_share;
  for (const Node* const child : node.children) {
    const double share = ShareOf(*child, kNothing, resource);
    if (share > 0) by_share.emplace_back(share, child);
  }
  std::stable_sort(
      by_share.begin(), by_share.end(),
      [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [share, child] : by_share) {
    const Node* const found = Borrower(*child, resource, spared);
    if (found != nullptr) return found;
  }
  // The quotas were reduced below what is used, or all are spared.
  return nullptr;
}

std::optional<std::string> QuotaTree::Reclaim(
    absl::string_view tenant, const Amounts& asked,
    const std::set<std::string>& spared) const {
  const Node* const node = Find(tenant);
  if (node == nullptr) return std::nullopt;
  size_t short_of = kResources;
  for (size_t i = kResources; i-- > 0;) {
    if (asked[i] == 0) continue;
    if (node->used[i] + asked[i] > node->quotas[i].nominal) return std::nullopt;
    if (asked[i] > Available(*node, i)) short_of = i;
  }
  if (short_of == kResources) return std::nullopt;
  // Finds the innermost cohort whose own quota does not suffice: its members
  // that exceed theirs are the cause.
  int64_t more = asked[short_of];
  const Node* at = node;
  do {
    more = std::max<int64_t>(
               0, at->used[short_of] + more - Guaranteed(*at, short_of)) -
           UsedOfParent(*at, short_of);
    at = at->parent;
    if (at == nullptr) return std::nullopt;
  } while (at->used[short_of] + more <= at->quotas[short_of].nominal);
  Amounts only = {};
  only[short_of] = 1;
  const Node* const from = Borrower(*at, only, spared);
  if (from == nullptr || from == node) return std::nullopt;
  return from->name;
}

bool QuotaTree::MayTakeBack(absl::string_view tenant, absl::string_view from,
                            const Amounts& asked) const {
  const Node* const node = Find(tenant);
  const Node* const other = Find(from);
  if (node == nullptr || other == nullptr || node == other) return false;
  bool borrows = false;
  for (size_t i = 0; i < kResources; ++i) {
    if (asked[i] == 0) continue;
    const Quota& quota = node->quotas[i];
    if (node->used[i] + asked[i] > quota.nominal) return false;
    if (!quota.limited() || borrows) continue;
    // Below the first cohort that contains both, each node on the way borrows
    // from outside.
    for (const Node* at = other; at->parent != nullptr; at = at->parent) {
      if (Beyond(*at, i) == 0) break;
      const Node* around = node->parent;
      while (around != nullptr && around != at->parent) around = around->parent;
      borrows = around != nullptr;
      if (borrows) break;
    }
  }
  return borrows;
}

int64_t QuotaTree::MemoryWithQuota(absl::string_view tenant,
                                   const Amounts& asked) const {
  const Node* const node = Find(tenant);
  if (node == nullptr) return 0;
  const auto with_quota = [&](Resource resource) {
    return node->quotas[Index(resource)].limited() ? asked[Index(resource)] : 0;
  };
  const int64_t all = asked[Index(Resource::kMemoryBytes)];
  if (with_quota(Resource::kMemoryBytes) > 0) return all;
  // Each is small enough that the sum does not overflow.
  return std::min(all, with_quota(Resource::kContentBytes) +
                           with_quota(Resource::kStorageBytes) +
                           with_quota(Resource::kCacheBytes));
}

std::vector<double> QuotaTree::Precedence(absl::string_view tenant,
                                          const Amounts& asked) const {
  std::vector<double> shares;
  Amounts more = asked;
  for (const Node* at = Find(tenant); at != nullptr; at = at->parent) {
    shares.push_back(ShareOf(*at, more, asked));
    for (size_t i = 0; i < kResources; ++i) {
      more[i] =
          std::max<int64_t>(0, at->used[i] + more[i] - Guaranteed(*at, i)) -
          UsedOfParent(*at, i);
    }
  }
  std::reverse(shares.begin(), shares.end());
  return shares;
}

double QuotaTree::Share(absl::string_view tenant) const {
  const Node* const node = Find(tenant);
  Amounts all;
  all.fill(1);
  return node == nullptr ? 0 : ShareOf(*node, kNothing, all);
}

int64_t QuotaTree::Used(absl::string_view tenant, Resource resource) const {
  const Node* const node = Find(tenant);
  return node == nullptr ? 0 : node->used[Index(resource)];
}

int64_t QuotaTree::Free(absl::string_view tenant, Resource resource) const {
  const Node* const node = Find(tenant);
  return node == nullptr
             ? Quota::kUnlimited
             : std::max<int64_t>(0, Available(*node, Index(resource)));
}

int64_t QuotaTree::Borrowed(absl::string_view tenant, Resource resource) const {
  const Node* const node = Find(tenant);
  return node == nullptr ? 0 : Beyond(*node, Index(resource));
}

int64_t QuotaTree::Spare(const Node& node, size_t resource) {
  if (!node.quotas[resource].limited()) return 0;
  return std::max<int64_t>(
      0, node.quotas[resource].nominal -
             std::max(node.used[resource], Guaranteed(node, resource)));
}

int64_t QuotaTree::LentBy(const Node& node, size_t resource) {
  if (node.parent == nullptr) return 0;
  // All that is borrowed in the parent, from it or through it; all that could
  // be borrowed; and of the latter, the parts of the nodes before this one, and
  // of this node.
  int64_t borrowed = LentBy(*node.parent, resource);
  int64_t spare = node.parent->own[resource];
  int64_t spare_before = 0;
  for (const Node* const child : node.parent->children) {
    borrowed += Beyond(*child, resource);
    if (child == &node) spare_before = spare;
    spare += Spare(*child, resource);
  }
  if (spare == 0) return 0;
  const int64_t lent = std::min(borrowed, spare);
  // Computes parts that add up exactly.
  const auto part = [&](int64_t of) {
    return static_cast<int64_t>(static_cast<__int128>(of) * lent / spare);
  };
  return part(spare_before + Spare(node, resource)) - part(spare_before);
}

int64_t QuotaTree::Lent(absl::string_view tenant, Resource resource) const {
  const Node* const node = Find(tenant);
  return node == nullptr ? 0 : LentBy(*node, Index(resource));
}

}  // namespace djinn::scheduler
