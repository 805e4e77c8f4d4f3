// Tracks the quotas of a trace's tenants, and how the tenants use them.
//
// As in a coordinator, a QuotaTree counts memory and a RateBudget grants device
// time. Borrowed and lent amounts are summed over time. Device time counts as
// borrowed only where it was used: beyond the tenant's nominal rate, up to its
// borrowed share. Lent device time is the lender's lent share times the used
// fraction of all that could be borrowed under its root. Times never decrease.
#ifndef SCHEDULER_SIMULATOR_SIMULATED_QUOTAS_H_
#define SCHEDULER_SIMULATOR_SIMULATED_QUOTAS_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "scheduler/quota/quota_tree.h"
#include "scheduler/quota/rate_budget.h"
#include "scheduler/quota/reclaim_losses.h"
#include "scheduler/simulator/trace.h"

namespace djinn::scheduler {

class SimulatedQuotas {
 public:
  // Amounts that a tenant borrowed, and that others borrowed from it, each
  // multiplied by time.
  struct Loans {
    double borrowed_byte_seconds = 0;
    double lent_byte_seconds = 0;
    double borrowed_device_seconds = 0;
    double lent_device_seconds = 0;
  };

  // The trace must outlive this object.
  explicit SimulatedQuotas(const Trace& trace);

  // Returns true when no tenant has a quota, so that all may have everything.
  bool empty() const { return empty_; }
  QuotaTree& tree() { return tree_; }
  ReclaimLosses& losses() { return losses_; }
  // Returns the amounts that each job of the tenant takes.
  const Amounts& asked(size_t tenant) const { return asked_[tenant]; }
  // Returns WaitQueue::Precedence; empty when there are no quotas.
  std::vector<double> Precedence(const std::string& tenant) const;
  // Note that a job of the tenant got a worker, or left it.
  void Take(size_t tenant, absl::Duration now);
  void Give(size_t tenant, absl::Duration now);

  // Returns whether the tenant's device time has a rate.
  bool rated(size_t tenant) const {
    return trace_.tenants[tenant].device_rate.has_value();
  }
  // Grants device time, in seconds, to one job of a tenant with a rate, and
  // returns it; 0 when nothing is left.
  double Grant(size_t tenant);
  // Subtracts device time that a job used beyond its grant; a negative number
  // returns unused time.
  void Owe(size_t tenant, double seconds);
  // Notes that a job of the tenant waits for device time.
  void NoteWaiting(size_t tenant, absl::Duration now);
  void NoteUsed(size_t tenant, double seconds);
  bool RatesAreDue(absl::Duration now) const { return rates_.Due(now); }
  // Shares out the rates that have become free since the last call.
  void AdvanceRates(absl::Duration now);

  // Returns the sums until now, by tenant.
  const std::vector<Loans>& Sum(absl::Duration now);

 private:
  // Adds the memory that is borrowed now, for the time since the last change.
  void PassTime(absl::Duration now);
  void CountRates(double seconds);

  const Trace& trace_;
  bool empty_ = true;
  absl::flat_hash_map<std::string, size_t> index_;
  std::vector<Amounts> asked_;
  QuotaTree tree_;
  ReclaimLosses losses_;
  RateBudget rates_{RateBudget::kMinSeconds, RateBudget::kMaxSeconds};
  // Total use of each tenant, now and when the rates were last shared out.
  std::map<std::string, double> used_;
  std::map<std::string, double> used_before_;
  absl::Duration advanced_;
  absl::Duration passed_;
  std::vector<Loans> loans_;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_SIMULATOR_SIMULATED_QUOTAS_H_
