// Who may have how much: quotas of tenants that lend what they do not use.
//
// The words and the rules are Kueue's. A tenant's nominal quota is its own,
// whatever others do. Tenants under one root, its cohort, lend each other the
// rest of theirs: at most lendingLimit of each, and nobody takes more than
// borrowingLimit beyond its nominal quota. Cohorts nest by their names: "lab"
// is the parent of "lab/vision". A tenant without a cohort borrows nothing.
//
// For a node n, with children below a cohort:
//     guaranteed(n) = nominal(n) - lendingLimit(n), at least 0: never lent
//     nominal(cohort) = sum over children of nominal - guaranteed
//     used(cohort) = sum over children of max(0, used - guaranteed)
//     available(n) = max(0, guaranteed - used)
//                    + min(available(parent),
//                          nominal - guaranteed + borrowingLimit
//                          - max(0, used - guaranteed))
// What is lent and not given back keeps a lender from its own: Reclaim() then
// says from whom to take it.
//
// Who goes first among those that ask is who has the lesser share: of the
// resources asked for, the largest part of what the cohort can lend that the
// node uses beyond its nominal quota, over its weight. Only what is asked for
// counts (unlike DRF's dominant share): a sibling that is greedy for another
// resource makes nobody wait. Shares are compared from the root down.
//
// Amounts are whole numbers, so that what is lent is what is borrowed, exactly.
// Operations take as long as the tree is deep; Reclaim() and Lent() look at all
// tenants. Pure logic, not thread-safe.
#ifndef SCHEDULER_QUOTA_QUOTA_TREE_H_
#define SCHEDULER_QUOTA_QUOTA_TREE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace djinn::scheduler {

// What quotas are of.
enum class Resource : size_t {
  kMemoryBytes,
  // Parts of it: for contents, and for all other storages.
  kContentBytes,
  kStorageBytes,
  kOutstandingMessages,
};
inline constexpr size_t kResources = 4;
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

  // Replaces quotas; what is used stays. One entry for each tenant.
  void Configure(const std::vector<TenantQuota>& tenants);

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
  // borrows what is short. Nobody when the ask exceeds the nominal quota, or
  // fits.
  std::optional<std::string> Reclaim(absl::string_view tenant,
                                     const Amounts& asked) const;

  // Shares as they would be, from the root down: who has less goes first.
  std::vector<double> Precedence(absl::string_view tenant,
                                 const Amounts& asked) const;

  // Of the whole tenant, over all resources.
  double Share(absl::string_view tenant) const;
  int64_t Used(absl::string_view tenant, Resource resource) const;
  // Of what the tenant uses, what is others'; of what is its own, what others
  // use: each lender's part in proportion to what it has to lend.
  int64_t Borrowed(absl::string_view tenant, Resource resource) const;
  int64_t Lent(absl::string_view tenant, Resource resource) const;

 private:
  struct Node {
    std::string name;
    Node* parent = nullptr;
    double weight = 1;
    Quotas quotas;
    Amounts used = {};
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
  static void Change(Node* node, size_t resource, int64_t amount);
  static const Node& Root(const Node& node);

  Node* Cohort(const std::string& name);
  const Node* Find(absl::string_view tenant) const;

  std::map<std::string, std::unique_ptr<Node>, std::less<>> tenants_;
  std::map<std::string, std::unique_ptr<Node>> cohorts_;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_QUOTA_QUOTA_TREE_H_
