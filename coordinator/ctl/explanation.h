// Explains placements in human-readable form, and what happened to a run.
#ifndef COORDINATOR_CTL_EXPLANATION_H_
#define COORDINATOR_CTL_EXPLANATION_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::ctl {

// Lists the decision's terms for every candidate, the chosen one first, and the
// reason for which the device waits. `session` is the session's current state.
std::string Explain(const v1::SessionExplanation& explanation,
                    const v1::SessionInfo& session);
std::string Explain(const v1::TenantExplanation& explanation);
std::string Explain(const v1::TryPlacementResponse& response);

// Returns the part of a session's explanation that is about one device.
std::string DescribeDevice(const v1::DeviceExplanation& device);

// Returns a table of the runs, and the workers that did not answer.
std::string ShowRuns(const v1::ListRunsResponse& runs);

// Lists what the run waited for, what blocks it, which runs preempted it or
// shared its products, and the terms of its placement.
std::string Explain(const v1::RunExplanation& explanation);

// Parses "SESSION/RUN" into a request. InvalidArgument for anything else.
absl::StatusOr<v1::ExplainRunRequest> ParseRun(absl::string_view text);

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_EXPLANATION_H_
