// What tenants of a trace may have, and what they make of it.
//
// Memory is counted by a QuotaTree, device time granted by a RateBudget, as in
// a coordinator. What was borrowed and lent is summed up over time. Of device
// time only what was used counts as borrowed: with so much of a share as its
// tenant used beyond its nominal rate meanwhile, and as lent, in proportion,
// what of that came from a lender. Times never go back.
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
  // What a tenant borrowed, and what others borrowed of it.
  struct Loans {
    double borrowed_byte_seconds = 0;
    double lent_byte_seconds = 0;
    double borrowed_device_seconds = 0;
    double lent_device_seconds = 0;
  };

  // The trace must outlive it.
  explicit SimulatedQuotas(const Trace& trace);

  // Nobody has a quota: all may have everything.
  bool empty() const { return empty_; }
  QuotaTree& tree() { return tree_; }
  ReclaimLosses& losses() { return losses_; }
  // What each job of the tenant takes.
  const Amounts& asked(size_t tenant) const { return asked_[tenant]; }
  // WaitQueue::Precedence; nothing when it is empty.
  std::vector<double> Precedence(const std::string& tenant) const;
  // A job of the tenant has got a worker, or has left it.
  void Take(size_t tenant, absl::Duration now);
  void Give(size_t tenant, absl::Duration now);

  // Whether the tenant's device time has a rate.
  bool rated(size_t tenant) const {
    return trace_.tenants[tenant].device_rate.has_value();
  }
  // Of such a tenant: what one job is granted now, in seconds; 0: nothing.
  double Grant(size_t tenant);
  // What it was granted too little, or too much if that is negative.
  void Owe(size_t tenant, double seconds);
  // A job waits for being granted some.
  void NoteWaiting(size_t tenant, absl::Duration now);
  void NoteUsed(size_t tenant, double seconds);
  bool RatesAreDue(absl::Duration now) const { return rates_.Due(now); }
  // Shares out what has become free since the last time.
  void AdvanceRates(absl::Duration now);

  // By tenant, until now.
  const std::vector<Loans>& Sum(absl::Duration now);

 private:
  // Counts memory that is borrowed now for the time since the last change.
  void PassTime(absl::Duration now);
  void CountRates(double seconds);

  const Trace& trace_;
  bool empty_ = true;
  absl::flat_hash_map<std::string, size_t> index_;
  std::vector<Amounts> asked_;
  QuotaTree tree_;
  ReclaimLosses losses_;
  RateBudget rates_{RateBudget::kMinSeconds, RateBudget::kMaxSeconds};
  // What each tenant used in all, now and when the rates were shared out last.
  std::map<std::string, double> used_;
  std::map<std::string, double> used_before_;
  absl::Duration advanced_;
  absl::Duration passed_;
  std::vector<Loans> loans_;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_SIMULATOR_SIMULATED_QUOTAS_H_
