// Who uses how much now.
#ifndef COORDINATOR_CTL_TOP_H_
#define COORDINATOR_CTL_TOP_H_

#include <string>

#include "absl/time/time.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::ctl {

// Workers, the busiest first: the part of the last minute in which the device
// was busy, memory, what is queued.
std::string TopWorkers(const v1::ListWorkersResponse& workers);

// Tenants, by the device time that they used from one list to the next,
// `passed` later: how many devices that makes, what they moved a second, and
// what they hold.
std::string TopTenants(const v1::ListTenantsResponse& before,
                       const v1::ListTenantsResponse& after,
                       absl::Duration passed);

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_TOP_H_
