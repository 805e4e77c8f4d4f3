// A session's runs, and what became of one of them, for people.
#ifndef COORDINATOR_CTL_RUN_EXPLANATION_H_
#define COORDINATOR_CTL_RUN_EXPLANATION_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::ctl {

// A table of them, and who says nothing.
std::string ShowRuns(const v1::ListRunsResponse& runs);

// What it waited for, what holds it, who went first of it and who shared its
// products, and the terms of where it is.
std::string Explain(const v1::RunExplanation& explanation);

// Of "SESSION/RUN", as a request has them. InvalidArgument for anything else.
absl::StatusOr<v1::ExplainRunRequest> ParseRun(absl::string_view text);

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_RUN_EXPLANATION_H_
