// Records what tenants hold of their quotas, and what borrowers lost when it
// was taken back.
//
// Invariant: `tree` holds exactly the quota of all leases and restored leases.
// Guarded by the cluster's lock.
#ifndef COORDINATOR_TABLES_QUOTAS_H_
#define COORDINATOR_TABLES_QUOTAS_H_

#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/config/tenants.h"
#include "scheduler/quota/quota_tree.h"
#include "scheduler/quota/reclaim_losses.h"

namespace djinn::coordinator {

struct Quotas {
  Quotas(std::vector<Cohort> configured, absl::Duration loss_limit)
      : cohorts(std::move(configured)), losses(loss_limit) {}

  // Cohorts as configured.
  std::vector<Cohort> cohorts;
  scheduler::QuotaTree tree;
  // Device time of sessions from which borrowed quota was taken back.
  double lost_device_seconds = 0;
  scheduler::ReclaimLosses losses;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_QUOTAS_H_
