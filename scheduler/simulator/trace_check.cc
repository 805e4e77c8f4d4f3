#include "scheduler/simulator/trace_check.h"

#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/error.h"

namespace djinn::scheduler {
namespace {

absl::Status Bad(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, "BAD_TRACE", what);
}

}  // namespace

absl::Status CheckTrace(const Trace& trace) {
  if (trace.workers.empty()) return Bad("there are no workers");
  if (trace.tenants.empty()) return Bad("there are no tenants");
  absl::flat_hash_set<std::string> ids;
  for (const WorkerFacts& worker : trace.workers) {
    if (!ids.insert(worker.id).second) {
      return Bad(absl::StrCat("worker ", worker.id, " is there twice"));
    }
    if (!IsKnown(worker.speed)) {
      return Bad(absl::StrCat("worker ", worker.id, " has no speed"));
    }
  }
  for (const SimulatedTenant& tenant : trace.tenants) {
    if (!(tenant.weight > 0)) {
      return Bad(absl::StrCat("tenant ", tenant.name, " has no weight"));
    }
  }
  double last = 0;
  for (const SimulatedJob& job : trace.jobs) {
    if (!(job.arrival_seconds >= last)) {
      return Bad("jobs do not come in order of arrival");
    }
    last = job.arrival_seconds;
    if (job.tenant >= trace.tenants.size()) {
      return Bad(absl::StrCat("there is no tenant ", job.tenant));
    }
  }
  return absl::OkStatus();
}

}  // namespace djinn::scheduler
