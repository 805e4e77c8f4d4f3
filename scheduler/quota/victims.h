// Chooses which borrowers give back quota, so that a tenant gets its own.
//
// A session yields at one worker at a time, with all its leases there. All
// victims are found before any of them yields: if they do not suffice, none
// does. The coordinator and the simulator use the same code. Pure logic.
#ifndef SCHEDULER_QUOTA_VICTIMS_H_
#define SCHEDULER_QUOTA_VICTIMS_H_

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "scheduler/quota/quota_tree.h"
#include "scheduler/quota/reclaim_losses.h"

namespace djinn::scheduler {

// Time until a waiting request looks for victims again after it found none.
// Others have their turn meanwhile.
inline constexpr absl::Duration kReclaimRetry = absl::Seconds(1);

// Number of times that a session precedes others of its tenant and class
// because it lost a worker. Without a limit they might wait forever behind a
// session that loses its worker each time.
inline constexpr int kMaxReturns = 3;

// A session at one worker. All its leases there end when its tenant gives back
// what it borrows.
struct Victim {
  std::string tenant;
  std::string session_id;
  std::string worker_id;
  // Whether the session is spared, its class, the device time that is lost with
  // it, and its age. A lower rank yields first.
  std::tuple<bool, int, absl::Duration, absl::Duration> rank;
  absl::Duration lost;
  // Quota that its tenant gives back by ending it.
  Amounts quota = {};
  // Memory that the session's end frees at the worker, without contents; and
  // the session's contents, which become free unless other sessions share them.
  uint64_t bytes = 0;
  uint64_t content_bytes = 0;
};

// Sorts the victims so that those that yield first come first.
void SortByRank(std::vector<Victim>* victims);

// Whether any victim should be spared, and the highest class among them.
using Standing = std::pair<bool, int>;
Standing StandingOf(const std::vector<Victim>& victims);

// Returns victims whose end lets the tenant have `asked` of its quota. Leaves
// out victims that are not necessary. Returns nothing when they do not suffice,
// or when none are needed. `victims_of` returns the sessions of a tenant that
// could yield, in any order. `quotas` is unchanged when this returns.
std::vector<Victim> VictimsForQuota(
    const std::string& tenant, const Amounts& asked,
    absl::FunctionRef<std::vector<Victim>(const std::string& tenant)>
        victims_of,
    ReclaimLosses::Allowance allowance, QuotaTree* quotas);

struct ChosenVictims {
  std::vector<Victim> victims;
  // The tenant that would lose too much, if the reclaim is put off; otherwise
  // empty.
  std::string put_off;
};
// Chooses victims within the tenants' limits on losses.
//
// Calls `choose` without limits, and returns those victims if their tenants
// lose no more than the limits allow. Otherwise calls `choose` within the
// limits, and returns those victims unless they include sessions that should
// rather be spared or have a higher class. Otherwise returns none, and notes in
// `losses` that the reclaim is put off.
ChosenVictims ChooseVictims(
    absl::FunctionRef<std::vector<Victim>(const ReclaimLosses::Allowance&)>
        choose,
    ReclaimLosses* losses, absl::Duration now);

// Counts what the tenants of the victims, which are about to yield, lose.
void NoteLosses(const std::vector<Victim>& victims, ReclaimLosses* losses,
                absl::Duration now);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_QUOTA_VICTIMS_H_
