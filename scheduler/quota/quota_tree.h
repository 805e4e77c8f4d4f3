// Who may have how much: quotas of tenants that lend what they do not use.
//
// The words and the rules are Kueue's. A tenant's nominal quota is its own,
// whatever others do. Tenants under one root, its cohort, lend each other the
// rest of theirs: at most lendingLimit of each, and nobody takes more than
// borrowingLimit beyond its nominal quota. Cohorts nest by their names: "lab"
// is the parent of "lab/vision". A tenant without a cohort borrows nothing.
//
// A cohort may have a quota, too: its nominal quota is nobody's, and lent to
// whoever is in it; its limits are of what all in it together lend to the
// cohorts around it, and borrow from there. Without one it has nothing of its
// own and no limits.
//
// For a node n, with children below a cohort:
//     guaranteed(n) = nominal(n) - lendingLimit(n), at least 0: never lent
//     nominal(cohort) = its own + sum over children of nominal - guaranteed
//     used(cohort) = sum over children of max(0, used - guaranteed)
//     available(n) = max(0, guaranteed - used)
//                    + min(available(parent),
//                          nominal - guaranteed + borrowingLimit
//                          - max(0, used - guaranteed))
// What is lent and not given back keeps a lender from its own: Reclaim() then
// says from whom to take it. That is somebody in the innermost cohort that is
// short, since what one cohort keeps to itself would not help another one.
//
// Who goes first among those that ask is who has the lesser share: of the
// resources asked for, the largest part of what the cohort can lend that the
// node uses beyond its nominal quota, over its weight. Only what is asked for
// counts (unlike DRF's dominant share): a sibling that is greedy for another
// resource makes nobody wait. Shares are compared from the root down. Likewise
// who has the greatest share gives back first.
//
// Amounts are whole numbers, so that what is lent is what is borrowed, exactly.
// Operations take as long as the tree is deep; Reclaim() and Lent() look at the
// children of each cohort on the way. Pure logic, not thread-safe.
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

// What quotas are of.
enum class Resource : size_t {
  kMemoryBytes,
  // Parts of it: for contents, for caches, and for all other storages.
  kContentBytes,
  kStorageBytes,
  kCacheBytes,
  kOutstandingMessages,
};
inline constexpr size_t kResources = 5;
// "memory_bytes".
absl::string_view ResourceName(Resource resource);

using Amounts = std::array<int64_t, kResources>;

struct Quota {
  // Amounts without a quota are this large, and lent to nobody.
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
  // Empty: none.
  std::string cohort;
  double weight = 1;
  Quotas quotas;
};

struct CohortQuota {
  std::string cohort;
  // Beside its siblings, tenants and cohorts.
  double weight = 1;
  // A resource that is not limited here has nothing of its own and no limits.
  Quotas quotas;
};

class QuotaTree {
 public:
  // What keeps an ask from being granted.
  struct Breach {
    Resource resource = Resource::kMemoryBytes;
    // What the tenant may have, now or ever; what it has; what it wants more.
    int64_t limit = 0;
    int64_t used = 0;
    int64_t asked = 0;
    // It would fit if others gave back what is borrowed.
    bool may_wait = false;
  };

  // Replaces quotas; what is used stays. One entry for each tenant, and at most
  // one for each cohort. A cohort at the root has nobody to lend to or borrow
  // from: its limits mean nothing.
  void Configure(const std::vector<TenantQuota>& tenants,
                 const std::vector<CohortQuota>& cohorts = {});

  // Nothing, or the first resource that is short. A tenant that is not
  // configured has no limits.
  std::optional<Breach> Check(absl::string_view tenant,
                              const Amounts& asked) const;
  // What the tenant has is more, or less, from now on; whether it fits is
  // Check()'s business.
  void Take(const std::string& tenant, const Amounts& amounts);
  void Give(const std::string& tenant, const Amounts& amounts);

  // From whom to take back what keeps the ask from fitting into the tenant's
  // nominal quota: the tenant of its cohort with the greatest share that
  // borrows what is short, but for those that are spared. Nobody when the ask
  // exceeds the nominal quota, or fits.
  std::optional<std::string> Reclaim(
      absl::string_view tenant, const Amounts& asked,
      const std::set<std::string>& spared = {}) const;
  // Whether `from` borrows, of a resource that is asked for and that `tenant`
  // has a quota of, what is lent to it at least in part by those that `tenant`
  // would borrow from; and the ask lies within the tenant's nominal quota.
  // Whatever else keeps the ask from being granted, such as room at a worker,
  // may then be taken from there.
  bool MayTakeBack(absl::string_view tenant, absl::string_view from,
                   const Amounts& asked) const;

  // Of the memory that is asked for, what `tenant` has a quota of: all of it,
  // or those parts of it. More room at a worker is not its own to take back.
  int64_t MemoryWithQuota(absl::string_view tenant, const Amounts& asked) const;

  // Shares as they would be, from the root down: who has less goes first.
  std::vector<double> Precedence(absl::string_view tenant,
                                 const Amounts& asked) const;

  // Of the whole tenant, over all resources.
  double Share(absl::string_view tenant) const;
  int64_t Used(absl::string_view tenant, Resource resource) const;
  // What it could be granted more with nothing taken back from others; not less
  // than 0.
  int64_t Free(absl::string_view tenant, Resource resource) const;
  // Of what the tenant uses, what is others'; of what is its own, what others
  // use: in each cohort each lender's part in proportion to what it has to
  // lend, a cohort's own quota and cohorts in it among them.
  int64_t Borrowed(absl::string_view tenant, Resource resource) const;
  int64_t Lent(absl::string_view tenant, Resource resource) const;

 private:
  struct Node {
    std::string name;
    Node* parent = nullptr;
    double weight = 1;
    // A cohort's with what its children can lend.
    Quotas quotas;
    Amounts used = {};
    // Of a cohort, without its children's.
    Amounts own = {};
    std::vector<Node*> children;
  };

  static int64_t Guaranteed(const Node& node, size_t resource);
  // Of what it uses, what counts at its parent.
  static int64_t UsedOfParent(const Node& node, size_t resource);
  static int64_t Available(const Node& node, size_t resource);
  // Were nothing used anywhere.
  static int64_t Potential(const Node& node, size_t resource);
  // With `more` beyond what is used, over the resources that `asked` has.
  static double ShareOf(const Node& node, const Amounts& more,
                        const Amounts& asked);
  static int64_t Beyond(const Node& node, size_t resource) {
    return std::max<int64_t>(
        0, node.used[resource] - node.quotas[resource].nominal);
  }
  // The tenant in the node, or the node itself, with the greatest share of the
  // resource, from the node down; null when only those borrow that are spared.
  static const Node* Borrower(const Node& node, const Amounts& resource,
                              const std::set<std::string>& spared);
  // What the node can still lend to its parent.
  static int64_t Spare(const Node& node, size_t resource);
  // What its parent's other children, and those that these lend to, use of it.
  static int64_t LentBy(const Node& node, size_t resource);
  static void Change(Node* node, size_t resource, int64_t amount);

  Node* Cohort(const std::string& name);
  const Node* Find(absl::string_view tenant) const;

  std::map<std::string, std::unique_ptr<Node>, std::less<>> tenants_;
  std::map<std::string, std::unique_ptr<Node>> cohorts_;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_QUOTA_QUOTA_TREE_H_
