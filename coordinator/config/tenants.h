// Who may use the cluster: tenants by their credentials.
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
#include "scheduler/quota/rate_shares.h"

namespace djinn::coordinator {

// Where its sessions may go.
struct PlacementWish {
  // Empty: the cluster's.
  std::string policy;
  // What a worker must have.
  std::vector<std::string> required;

  friend bool operator==(const PlacementWish&, const PlacementWish&) = default;
};

struct Tenant {
  std::string name;
  // Secret.
  std::string token;
  uint32_t max_sessions = 0;
  // Of each session, and of all of them, on one worker.
  v1::SessionLimits limits;
  v1::TenantLimits totals;
  CreditLimits credits;
  PlacementWish placement;
  // Its share of each device beside other tenants that have work.
  double weight = 1;
  // Contents, with other tenants that do: see DesiredState.sharing_tenants.
  bool share_contents = false;
  // Products, with other tenants that do: see DesiredState.batching_tenants.
  bool batch_with_others = false;
  // The highest that its sessions may ask for.
  v1::PriorityClass max_priority_class = v1::PRIORITY_CLASS_REALTIME;
  // Tenants with the same first part lend each other quota. Empty: none.
  std::string cohort;
  scheduler::Quotas quotas;
  // Of device time, in seconds per second, and of what its sessions move, in
  // bytes per second. Unset: not limited.
  std::optional<scheduler::RateQuota> device_rate;
  std::optional<scheduler::RateQuota> byte_rate;
};

// Tenants that lend each other quota, together.
struct Cohort {
  // With those around it: "lab/vision".
  std::string name;
  // Beside tenants and cohorts of the one around it.
  double weight = 1;
  // What is nobody's but theirs, and what all of them lend and borrow around
  // it. Not limited: nothing, without limits; rates likewise.
  scheduler::Quotas quotas;
  std::optional<scheduler::RateQuota> device_rate;
  std::optional<scheduler::RateQuota> byte_rate;

  friend bool operator==(const Cohort&, const Cohort&) = default;
};

// What a lease takes of its tenant's quota: all that its session may use at the
// worker. A part of the memory without a limit of its own may be all of it.
scheduler::Amounts LeaseQuota(const Tenant& tenant);

// The most memory that a lease's session may ever hold at the worker.
uint64_t LeaseMemory(const Tenant& tenant);

// Thread-safe. Tenants are replaced as a whole; who has one keeps it as it was.
class Tenants {
 public:
  // By name.
  using Map = std::map<std::string, std::shared_ptr<const Tenant>, std::less<>>;
  using Snapshot = std::shared_ptr<const Map>;

  explicit Tenants(std::vector<Tenant> tenants) { Replace(std::move(tenants)); }

  void Replace(std::vector<Tenant> tenants);

  // The tenant that owns the token; how long it takes does not depend on which
  // one, nor on how much of the token is right. Unauthenticated
  // (TOKEN_UNKNOWN).
  absl::StatusOr<std::shared_ptr<const Tenant>> Authenticate(
      absl::string_view token) const;

  // Null when there is none.
  std::shared_ptr<const Tenant> Find(absl::string_view name) const;

  Snapshot all() const;

  // The names of those that agree to it, in order.
  std::vector<std::string> NamesThat(bool Tenant::* agree) const;

 private:
  mutable Mutex mu_;
  Snapshot tenants_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CONFIG_TENANTS_H_
