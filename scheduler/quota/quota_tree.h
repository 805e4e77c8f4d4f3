// Quotas of tenants that lend each other what they do not use, in Kueue's
// terms.
//
// A tenant's nominal quota is always its own. Tenants under one root, its
// cohort, lend each other the unused rest of theirs: at most lendingLimit of
// each, and no tenant borrows more than borrowingLimit. Cohorts nest by their
// names: "lab" is the parent of "lab/vision". A tenant without a cohort borrows
// nothing.
//
// A cohort may have a quota, too. Its nominal quota belongs to no tenant and is
// lent to all nodes in the cohort. Its limits apply to what all nodes in it
// together lend to, and borrow from, the cohorts around it. A cohort without a
// quota has no amounts of its own and no limits.
//
// For a node n, with children below a cohort:
//     guaranteed(n) = nominal(n) - lendingLimit(n), at least 0: never lent
//     nominal(cohort) = its own + sum over children of nominal - guaranteed
//     used(cohort) = sum over children of max(0, used - guaranteed)
//     available(n) = max(0, guaranteed - used)
//                    + min(available(parent),
//                          nominal - guaranteed + borrowingLimit
//                          - max(0, used - guaranteed))
// Lent amounts that are not given back keep a lender from its own quota.
// Reclaim() then names the tenant from which to take them. It chooses in the
// innermost cohort that is short, since what one cohort keeps to itself would
// not help another one.
//
// Among requests, the tenant with the smaller share is first. Its share is the
// greatest ratio, over the asked resources, of the use beyond its nominal quota
// to what the cohort can lend, divided by its weight. Only asked resources
// count (unlike DRF's dominant share), so that a sibling that is greedy for
// another resource delays no request. Shares are compared from the root down.
// The tenant with the greatest share gives back first.
//
// Amounts are integers, so that lent and borrowed amounts are equal exactly.
// Operations cost O(depth); Reclaim() and Lent() also visit the children of
// each cohort on the path. Pure logic, not thread-safe.
#ifndef SCHEDULER_QUOTA_QUOTA_TREE_H_
#define SCHEDULER_QUOTA_QUOTA_TREE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace djinn::scheduler {

// The resources that quotas limit.
enum class Resource : size_t {
  kMemoryBytes,
  // Parts of the memory: for contents, for all other storages, and for caches.
  kContentBytes,
  kStorageBytes,
  kCacheBytes,
  kOutstandingMessages,
};
inline constexpr size_t kResources = 5;
// Returns the name of the resource, such as "memory_bytes".
absl::string_view ResourceName(Resource resource);

using Amounts = std::array<int64_t, kResources>;

struct Quota {
  // The amount of a resource without a quota. It is never lent.
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max() / 4;

  int64_t nominal = kUnlimited;
  std::optional<int64_t> borrowing_limit;
  std::optional<int64_t> lending_limit;

  bool limited() const { return nominal < kUnlimited; }
  friend bool operator==(const Quota&, const Quota&) = default;
};
using Quotas = std::array<Quota, kResources>;

struct TenantQuota {
  std::string tenant;
  // Empty for none.
  std::string cohort;
  double weight = 1;
  Quotas quotas;
};

struct CohortQuota {
  std::string cohort;
  // Weight beside its siblings, which are tenants and cohorts.
  double weight = 1;
  // An unlimited resource means that the cohort owns none of it and has no
  // limits.
  Quotas quotas;
};

class QuotaTree {
 public:
  // The reason why a request exceeds a quota.
  struct Breach {
    Resource resource = Resource::kMemoryBytes;
    // The limit of the tenant (now, or ever), its use, and the asked amount.
    int64_t limit = 0;
    int64_t used = 0;
    int64_t asked = 0;
    // True when the request would fit if borrowers gave back what they
    // borrowed.
    bool may_wait = false;
  };

  // Replaces all quotas and keeps the recorded use. Takes one entry for each
  // tenant and at most one for each cohort. The limits of a root cohort have no
  // effect, because it has no cohort to lend to or borrow from.
  void Configure(const std::vector<TenantQuota>& tenants,
                 const std::vector<CohortQuota>& cohorts = {});

  // Returns nothing, or the first resource that is short. A tenant that is not
  // configured has no limits.
  std::optional<Breach> Check(absl::string_view tenant,
                              const Amounts& asked) const;
  // Records that the tenant uses these amounts more, or less. Does not check
  // the quota; Check() does.
  void Take(const std::string& tenant, const Amounts& amounts);
  void Give(const std::string& tenant, const Amounts& amounts);

  // Returns the tenant from which to reclaim so that the request fits into the
  // tenant's nominal quota: the tenant of its cohort with the greatest share
  // that borrows the missing resource, except those in `spared`. Returns
  // nothing when the request exceeds the nominal quota, or fits.
  std::optional<std::string> Reclaim(
      absl::string_view tenant, const Amounts& asked,
      const std::set<std::string>& spared = {}) const;
  // Returns whether `from` borrows an asked resource that is lent to it at
  // least in part by the nodes from which `tenant` would borrow, while the
  // request lies within the tenant's nominal quota. In that case other
  // obstacles of the request, such as room at a worker, may be removed by
  // reclaiming from `from`.
  bool MayTakeBack(absl::string_view tenant, absl::string_view from,
                   const Amounts& asked) const;

  // Returns the part of the asked memory for which `tenant` has a quota. The
  // tenant may not reclaim more room than that at a worker.
  int64_t MemoryWithQuota(absl::string_view tenant, const Amounts& asked) const;

  // Returns the shares that the tenant's cohorts, from the root down, and the
  // tenant would have with the request. Requests are ordered by them: the
  // smaller share comes first.
  std::vector<double> Precedence(absl::string_view tenant,
                                 const Amounts& asked) const;

  // Returns the tenant's dominant share over all resources.
  double Share(absl::string_view tenant) const;
  int64_t Used(absl::string_view tenant, Resource resource) const;
  // Returns the amount that the tenant could be granted without reclaiming; not
  // less than 0.
  int64_t Free(absl::string_view tenant, Resource resource) const;
  // Borrowed() returns the part of the tenant's use that belongs to others;
  // Lent() returns the part of its nominal quota that others use. In each
  // cohort, each lender counts in proportion to what it has to lend; a cohort's
  // own quota and the cohorts in it are lenders, too.
  int64_t Borrowed(absl::string_view tenant, Resource resource) const;
  int64_t Lent(absl::string_view tenant, Resource resource) const;

 private:
  struct Node {
    std::string name;
    Node* parent = nullptr;
    double weight = 1;
    // For a cohort, includes what its children can lend.
    Quotas quotas;
    Amounts used = {};
    // The cohort's own quota, without its children's.
    Amounts own = {};
    std::vector<Node*> children;
  };

  static int64_t Guaranteed(const Node& node, size_t resource);
  // Returns the part of the node's use that counts at its parent.
  static int64_t UsedOfParent(const Node& node, size_t resource);
  static int64_t Available(const Node& node, size_t resource);
  // Returns the amount that would be available if nothing were used anywhere.
  static int64_t Potential(const Node& node, size_t resource);
  // Returns the node's share with `more` in addition to its use, over the
  // resources in `asked`.
  static double ShareOf(const Node& node, const Amounts& more,
                        const Amounts& asked);
  static int64_t Beyond(const Node& node, size_t resource) {
    return std::max<int64_t>(
        0, node.used[resource] - node.quotas[resource].nominal);
  }
  // Returns the tenant in the node, or the node itself, with the greatest share
  // of the resource, from the node down. Returns null when only spared tenants
  // borrow.
  static const Node* Borrower(const Node& node, const Amounts& resource,
                              const std::set<std::string>& spared);
  // Returns the amount that the node can still lend to its parent.
  static int64_t Spare(const Node& node, size_t resource);
  // Returns the amount of the node that its siblings, and the nodes to which
  // these lend, use.
  static int64_t LentBy(const Node& node, size_t resource);
  static void Change(Node* node, size_t resource, int64_t amount);

  Node* Cohort(const std::string& name);
  const Node* Find(absl::string_view tenant) const;

  std::map<std::string, std::unique_ptr<Node>, std::less<>> tenants_;
  std::map<std::string, std::unique_ptr<Node>> cohorts_;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_QUOTA_QUOTA_TREE_H_
