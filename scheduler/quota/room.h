// Chooses which borrowers give back memory at a worker.
//
// It serves a request whose quota suffices while no worker has the memory:
// borrowers give back what they hold at one worker, so that the request fits
// there. The coordinator and the simulator use the same code. Pure logic.
#ifndef SCHEDULER_QUOTA_ROOM_H_
#define SCHEDULER_QUOTA_ROOM_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "scheduler/placement/fleet.h"
#include "scheduler/placement/terms.h"
#include "scheduler/quota/quota_tree.h"
#include "scheduler/quota/victims.h"
#include "scheduler/semantics/cost/roofline.h"

namespace djinn::scheduler {

// Returns the amounts of a lease that occupy memory at a worker.
Amounts MemoryOf(Amounts asked);

// Returns victims from `in_order`, all at one worker, whose end frees `needed`
// bytes there. Leaves out victims that are not necessary. Returns nothing when
// all together do not suffice.
//
// `shared` is the number of bytes of contents that sessions count beyond what
// the worker holds; ending a session does not free them. No tenant gives back
// more than it borrows. `quotas` is unchanged when this returns.
std::vector<Victim> VictimsForRoom(const std::string& lender,
                                   const Amounts& asked,
                                   const std::vector<Victim>& in_order,
                                   uint64_t shared, uint64_t needed,
                                   ReclaimLosses::Allowance allowance,
                                   QuotaTree* quotas);

// The sessions that may yield, by worker.
using VictimsByWorker = std::map<std::string, std::vector<Victim>>;
// Returns the cheapest victims, all at one worker, whose end makes the request
// fit there. Considers only workers where the missing bytes do not exceed the
// memory in `asked` that the lender's quota covers. Returns nothing when there
// is no such worker. `shared_contents` returns a worker's `shared`, as above.
std::vector<Victim> VictimsAtOneWorker(
    const std::string& lender, const Amounts& asked, const Request& request,
    const VictimsByWorker& by_worker, const Fleet& fleet,
    const semantics::CostFactors& factors,
    absl::FunctionRef<uint64_t(const std::string& worker_id)> shared_contents,
    const ReclaimLosses::Allowance& allowance, QuotaTree* quotas);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_QUOTA_ROOM_H_
