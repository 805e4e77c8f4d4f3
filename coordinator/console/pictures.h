// Writes what the page draws, as JSON. Pure functions.
//
// Times are microseconds since 1970 on the console's clock, durations
// microseconds, sizes bytes. -1 stands for "none". Texts in rows are indices
// into a list of names of the same answer. Column names stand beside the rows
// ("columns"), so that the page depends on names and not on positions.
#ifndef COORDINATOR_CONSOLE_PICTURES_H_
#define COORDINATOR_CONSOLE_PICTURES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/console/lease_history.h"
#include "coordinator/console/memory_history.h"
#include "coordinator/console/observer.h"
#include "coordinator/console/run_history.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::console {

// Numbers of nodes beyond which GraphJson() leaves nodes and edges out.
inline constexpr int kMaxDrawnNodes = 5'000;

// State of the console and the cluster in a few numbers.
std::string OverviewJson(const Observer::Now& now, absl::Duration interval);
// All workers. `now.snapshot` is not null here and below.
std::string WorkersJson(const Snapshot& snapshot);
// Runs whose last change has a number between `after` and `before`, both
// excluded: at most kMaxSentRuns, those that changed last. "rest_before" is the
// `before` of the others; 0: there are none.
inline constexpr int kMaxSentRuns = 10'000;
std::string RunsJson(const RunHistory& runs, uint64_t after, uint64_t before);
// Tenants with quotas, use and shares, and what waits.
std::string SharesJson(const Snapshot& snapshot);
// One moment, and the times of all.
std::string MemoryJson(const MemoryMoment& moment,
                       const std::vector<absl::Time>& times);
// Virtual devices whose leases changed, the latest change first, at most 500.
std::string LineageJson(const LeaseHistory& leases);
// The known graphs.
std::string GraphsJson(const Snapshot& snapshot);
// One graph with its meaning. `workers` predict its time.
std::string GraphJson(const v1::GraphInfo& graph,
                      const RunHistory::Measured& measured,
                      const v1::ListWorkersResponse& workers);

}  // namespace djinn::console

#endif  // COORDINATOR_CONSOLE_PICTURES_H_
