// Limits how much of a resource each tenant may be granted now, where its quota
// is a rate: device-seconds, or bytes, per second.
//
// A tenant's allowance grows with time at the rate that its cohort leaves it
// (scheduler/quota/rate_shares.h) and shrinks by what its leases are granted.
// It holds at most the growth of kBurst: over any time T a tenant is granted no
// more than its rate times (T + kBurst), and unused allowance expires. The
// demand of a tenant is its recent use, unless one of its leases waits for
// credit: then the tenant wants all it can get.
//
// Not thread-safe; reads no clock.
#ifndef SCHEDULER_QUOTA_RATE_BUDGET_H_
#define SCHEDULER_QUOTA_RATE_BUDGET_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/quota/rate_shares.h"

namespace djinn::scheduler {

class RateBudget {
 public:
  static constexpr absl::Duration kBurst = absl::Seconds(10);
  // The interval at which rates are shared again.
  static constexpr absl::Duration kInterval = absl::Milliseconds(100);

  // The device time, in seconds, that one lease is granted at a time.
  static constexpr double kMinSeconds = 0.02;
  static constexpr double kMaxSeconds = 60;

  // Sets the least and the most that one lease is granted at a time, in the
  // unit of the resource.
  RateBudget(double min_slice, double max_slice)
      : min_slice_(min_slice), max_slice_(max_slice) {}

  struct Tenant {
    std::string name;
    // Empty for none.
    std::string cohort;
    double weight = 1;
    RateQuota quota;
  };

  // Replaces the tenants and their cohorts; those that stay keep their
  // allowance, new ones begin with a full one.
  void Configure(std::vector<Tenant> tenants,
                 std::vector<CohortRate> cohorts = {});

  // Returns true when no tenant has such a quota.
  bool empty() const { return states_.empty(); }

  // Returns the shares, by tenant, that Advance() would compute now if the
  // tenant had this quota. A tenant that has no quota so far counts as wanting
  // all.
  std::map<std::string, RateShare> Try(const Tenant& changed,
                                       absl::Duration now) const;
  // Returns the share that the tenant would get if it wanted all that it may
  // have.
  RateShare TryAll(const Tenant& changed, absl::Duration now) const;

  // Notes that a lease of the tenant waits for credit.
  void NoteWaiting(const std::string& tenant, absl::Duration now);
  // Returns whether it is time to call Advance().
  bool Due(absl::Duration now) const { return now - last_ >= kInterval; }
  // Shares out the rates that have become free since the last call. `used` is
  // the total use of each tenant.
  void Advance(absl::Duration now, const std::map<std::string, double>& used);

  // Returns the tenant's allowance; null if the tenant has no quota of this
  // rate. The caller subtracts grants from the allowance, and adds returned
  // credit, up to Most().
  double* Allowance(const std::string& tenant);
  // Returns the cap of the allowance; 0 for a tenant without such a quota.
  double Most(const std::string& tenant) const;
  // Returns the amount that one lease is granted at a time.
  double Slice(const std::string& tenant) const;
  // Returns the latest share; zeros for a tenant without such a quota.
  RateShare ShareOf(const std::string& tenant) const;
  // Returns the borrowed part of all that could be lent under the tenant's
  // root, divided by its weight.
  double WeightedShareOf(const std::string& tenant) const;
  // Returns the tenant's recent use per second.
  double RateOf(const std::string& tenant) const;

 private:
  struct State {
    Tenant tenant;
    double allowance = 0;
    double used = 0;
    bool known = false;
    double rate = 0;
    absl::Duration waited = -absl::InfiniteDuration();
    RateShare share;
  };
  double Full(const State& state) const;
  std::map<std::string, RateShare> Try(const Tenant& changed, bool wants_all,
                                       absl::Duration now) const;
  static RateDemand DemandOf(const State& state, absl::Duration now);

  const double min_slice_;
  const double max_slice_;
  std::map<std::string, State> states_;
  std::vector<CohortRate> cohorts_;
  absl::Duration last_ = -absl::InfiniteDuration();
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_QUOTA_RATE_BUDGET_H_
