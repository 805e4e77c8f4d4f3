// Who gives back room at a worker that goes with what is borrowed.
//
// The quota is there, but no worker has the memory: borrowers give back what
// they hold at one worker on which the request fits then. Coordinator and
// simulator go by this alike. Pure logic.
#ifndef SCHEDULER_QUOTA_ROOM_H_
#define SCHEDULER_QUOTA_ROOM_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "scheduler/placement/fleet.h"
#include "scheduler/placement/request.h"
#include "scheduler/quota/quota_tree.h"
#include "scheduler/quota/victims.h"
#include "scheduler/semantics/cost/roofline.h"

namespace djinn::scheduler {

// Of what a lease takes, what room at a worker has to do with.
Amounts MemoryOf(Amounts asked);

// Those of `in_order`, all at one worker, whose end makes so much room there,
// and none that it could do without. Empty when there are not enough. What
// sessions count of contents beyond what the worker holds is `shared`: of that
// nothing becomes free. Nobody gives back more than it borrows. `quotas` is as
// it was when this returns.
std::vector<Victim> VictimsForRoom(const std::string& lender,
                                   const Amounts& asked,
                                   const std::vector<Victim>& in_order,
                                   uint64_t shared, uint64_t needed,
                                   ReclaimLosses::Allowance allowance,
                                   QuotaTree* quotas);

// Where they are, of those that may yield.
using VictimsByWorker = std::map<std::string, std::vector<Victim>>;
// The cheapest of these, all at one worker on which the request fits then, if
// what is missing there is no more than what `asked` is of the lender's own.
// Empty when there is none. `shared_contents` says of a worker what `shared` is
// above.
std::vector<Victim> VictimsAtOneWorker(
    const std::string& lender, const Amounts& asked, const Request& request,
    const VictimsByWorker& by_worker, const Fleet& fleet,
    const semantics::CostFactors& factors,
    absl::FunctionRef<uint64_t(const std::string& worker_id)> shared_contents,
    const ReclaimLosses::Allowance& allowance, QuotaTree* quotas);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_QUOTA_ROOM_H_
