// Human-readable reasons for placements, and what happened to a run.
#ifndef COORDINATOR_CTL_EXPLANATION_H_
#define COORDINATOR_CTL_EXPLANATION_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
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

// A table of them, and who says nothing.
std::string ShowRuns(const v1::ListRunsResponse& runs);

// What it waited for, what holds it, who went first of it and who shared its
// products, and the terms of where it is.
std::string Explain(const v1::RunExplanation& explanation);

// Of "SESSION/RUN", as a request has them. InvalidArgument for anything else.
absl::StatusOr<v1::ExplainRunRequest> ParseRun(absl::string_view text);

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_EXPLANATION_H_
