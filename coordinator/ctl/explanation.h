// Why things are placed as they are, for people.
#ifndef COORDINATOR_CTL_EXPLANATION_H_
#define COORDINATOR_CTL_EXPLANATION_H_

#include <string>

#include "djinn/v1/admin.pb.h"

namespace djinn::ctl {

// The decision's terms for every candidate, the chosen one first, and what
// holds the device.
// `session`: as it is now.
std::string Explain(const v1::SessionExplanation& explanation,
                    const v1::SessionInfo& session);
std::string Explain(const v1::TenantExplanation& explanation);
std::string Explain(const v1::TryPlacementResponse& response);

// The part of a session's explanation that is one device's.
std::string DescribeDevice(const v1::DeviceExplanation& device);

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_EXPLANATION_H_
