// Who gives back what is borrowed, for a tenant to have what is its own.
//
// A session yields at one worker at a time, with all of its leases there.
// All that have to are found before anybody does: if they are not enough, none
// does. Coordinator and simulator go by this alike. Pure logic.
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

// After looking in vain for what could be taken back, for one that waits:
// others have their turn meanwhile.
inline constexpr absl::Duration kReclaimRetry = absl::Seconds(1);

// How often a session goes before others of its tenant and class because it
// lost a worker: they would wait for ever behind one that loses it each time.
inline constexpr int kMaxReturns = 3;

// A session at one worker, of which all leases there end when its tenant gives
// back what it borrows.
struct Victim {
  std::string tenant;
  std::string session_id;
  std::string worker_id;
  // Less yields first: one that is not spared yet, its class, the device
  // time that is lost with it, its age.
  std::tuple<bool, int, absl::Duration, absl::Duration> rank;
  absl::Duration lost;
  // What its tenant has less without it.
  Amounts quota = {};
  // What the worker has more without it; contents, unless others share them.
  uint64_t bytes = 0;
  uint64_t content_bytes = 0;
};

// Who yields first first.
void SortByRank(std::vector<Victim>* victims);

// Whether any of them should be spared, and the most urgent class.
using Standing = std::pair<bool, int>;
Standing StandingOf(const std::vector<Victim>& victims);

// Whose end lets the tenant have so much of its quota, and nobody that it could
// do without. Empty when there are not enough, or none are needed. `victims_of`
// says of a tenant who could yield, in any order. `quotas` is as it was when
// this returns.
std::vector<Victim> VictimsForQuota(
    const std::string& tenant, const Amounts& asked,
    absl::FunctionRef<std::vector<Victim>(const std::string& tenant)>
        victims_of,
    ReclaimLosses::Allowance allowance, QuotaTree* quotas);

struct ChosenVictims {
  std::vector<Victim> victims;
  // Nobody for now: this tenant would lose too much. Empty: that is not why.
  std::string put_off;
};
// Those that `choose` finds without regard to what their tenants lose by it, if
// that is within limits; or those within limits, unless that takes others that
// should be spared, or are more urgent. Else nobody, and that is noted: it is
// put off.
ChosenVictims ChooseVictims(
    absl::FunctionRef<std::vector<Victim>(const ReclaimLosses::Allowance&)>
        choose,
    ReclaimLosses* losses, absl::Duration now);

// They have to yield: what their tenants lose counts from now on.
void NoteLosses(const std::vector<Victim>& victims, ReclaimLosses* losses,
                absl::Duration now);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_QUOTA_VICTIMS_H_
