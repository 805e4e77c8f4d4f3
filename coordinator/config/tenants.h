// Knows who may use the cluster: tenants by their credentials.
#ifndef COORDINATOR_CONFIG_TENANTS_H_
#define COORDINATOR_CONFIG_TENANTS_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "coordinator/config/credit_ledger.h"
#include "djinn/v1/lease.pb.h"
#include "djinn/v1/types.pb.h"
#include "scheduler/quota/quota_tree.h"
#include "scheduler/quota/rate_budget.h"
#include "scheduler/quota/rate_shares.h"

namespace djinn::coordinator {

// The tenant's requirements for the placement of its sessions.
struct PlacementWish {
  // Empty for the cluster's policy.
  std::string policy;
  // Device kinds and capabilities that a worker must have.
  std::vector<std::string> required;

  friend bool operator==(const PlacementWish&, const PlacementWish&) = default;
};

struct Tenant {
  std::string name;
  // Secret.
  std::string token;
  uint32_t max_sessions = 0;
  // Limits of each session, and of all of them together, on one worker.
  v1::SessionLimits limits;
  v1::TenantLimits totals;
  CreditLimits credits;
  PlacementWish placement;
  // Weight in the sharing of each device with other tenants that have work.
  double weight = 1;
  // Whether it shares contents with other tenants that do: see
  // DesiredState.sharing_tenants.
  bool share_contents = false;
  // Whether its products are batched with those of other tenants that agree:
  // see DesiredState.batching_tenants.
  bool batch_with_others = false;
  // The highest class that its sessions may ask for.
  v1::PriorityClass max_priority_class = v1::PRIORITY_CLASS_REALTIME;
  // Tenants whose cohort paths begin with the same part lend each other quota.
  // Empty for none.
  std::string cohort;
  scheduler::Quotas quotas;
  // Rates of device time, in seconds per second, and of transfers of its
  // sessions, in bytes per second. Unset means unlimited.
  std::optional<scheduler::RateQuota> device_rate;
  std::optional<scheduler::RateQuota> byte_rate;
  // The tenant as the configuration has it, when operators have set quotas in
  // place of the configured ones. Null otherwise.
  std::shared_ptr<const Tenant> configured;
};

// Returns whether two tenants have the same settings, apart from their names.
bool SameSettings(const Tenant& a, const Tenant& b);

// Tenants that lend each other quota, as a group.
struct Cohort {
  // Path with the cohorts around it, such as "lab/vision".
  std::string name;
  // Weight beside the tenants and cohorts of its parent.
  double weight = 1;
  // The cohort's own quotas, which its members borrow, and their limits for
  // lending and borrowing outside it. An unlimited quota, or an unset rate,
  // means that it owns nothing and has no limits.
  scheduler::Quotas quotas;
  std::optional<scheduler::RateQuota> device_rate;
  std::optional<scheduler::RateQuota> byte_rate;

  friend bool operator==(const Cohort&, const Cohort&) = default;
};

// Returns what a lease takes of its tenant's quota: all that its session may
// use at the worker. A part of the memory without a limit of its own counts as
// all of it.
scheduler::Amounts LeaseQuota(const Tenant& tenant);

// Returns the most memory that a lease's session may ever hold at the worker.
uint64_t LeaseMemory(const Tenant& tenant);

// The configured tenants. They are replaced as a whole; a Tenant that is in use
// stays unchanged. Thread-safe.
class Tenants {
 public:
  // Tenants by name.
  using Map = std::map<std::string, std::shared_ptr<const Tenant>, std::less<>>;
  using Snapshot = std::shared_ptr<const Map>;

  explicit Tenants(std::vector<Tenant> tenants) { Replace(std::move(tenants)); }

  void Replace(std::vector<Tenant> tenants);

  // Returns the tenant that owns the token, or Unauthenticated (TOKEN_UNKNOWN).
  // The time that this takes depends neither on the tenant nor on how much of
  // the token is right.
  absl::StatusOr<std::shared_ptr<const Tenant>> Authenticate(
      absl::string_view token) const;

  // Returns null when there is no such tenant.
  std::shared_ptr<const Tenant> Find(absl::string_view name) const;

  Snapshot all() const;

  // Returns the tenants as the configuration has them, without quotas that
  // operators set.
  std::vector<Tenant> Configured() const;

  // Returns the names of the tenants for which `agree` is true, in order.
  std::vector<std::string> NamesThat(bool Tenant::* agree) const;

 private:
  mutable Mutex mu_;
  Snapshot tenants_ ABSL_GUARDED_BY(mu_);
};

// Returns only the fields that this program knows. A peer's unknown fields must
// not be signed and passed on.
v1::Urgency KnownUrgency(const v1::Urgency& said);

// Returns `asked` with its class lowered to the highest one that the tenant's
// sessions may have.
v1::Urgency AllowedUrgency(const Tenant& tenant, const v1::Urgency& asked);
// Like the function above. A null `tenant` stands for a tenant that is not
// configured and has no limits.
v1::Urgency AllowedUrgency(const Tenant* tenant, const v1::Urgency& asked);

// Converts the configured quotas of tenants and cohorts to the forms with which
// the scheduler computes.
struct ConfiguredRates {
  // The tenants and the cohorts that have a quota of this rate.
  std::vector<scheduler::RateBudget::Tenant> tenants;
  std::vector<scheduler::CohortRate> cohorts;
};

struct ConfiguredQuotas {
  std::vector<scheduler::TenantQuota> tenants;
  std::vector<scheduler::CohortQuota> cohorts;
  ConfiguredRates device_rates;
  ConfiguredRates byte_rates;
};

ConfiguredQuotas QuotasOf(const Tenants::Map& tenants,
                          const std::vector<Cohort>& cohorts);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CONFIG_TENANTS_H_
