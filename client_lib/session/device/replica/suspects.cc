#include "client_lib/session/device/replica/suspects.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/device/replica/replica.h"
#include "client_lib/session/device/replica/replica_state.h"
#include "client_lib/session/device/replica/seen_values.h"
#include "client_lib/session/model/links.h"
#include "client_lib/session/model/remedies.h"
#include "common/base/error.h"

namespace djinn::replica {
namespace {

using Node = Lineage::Node;

// Returns the runs that may have ended the worker: those on their way to it
// that no worker has executed, or else the first one on its way. Clears those
// that a worker survived.
std::vector<Node*> Suspects(State& r)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu) {
  ConnectionState& c = r.connection;
  std::vector<Node*> suspects;
  Node* first = nullptr;
  for (Node& node : c.lineage->nodes()) {
    // It was given up, and another message took its place.
    if (node.suspicion >= RecoveryState::kGivenUp) continue;
    // The number of a message that was not replayed may be an earlier worker's.
    if ((node.executed && c.recovery.last_replayed == 0) ||
        node.sequence <= c.log.completed()) {
      node.suspicion = 0;
      continue;
    }
    if (node.sequence > c.log.sent() || KeptOf(node) == nullptr ||
        KeptOf(node)->run == nullptr) {
      continue;
    }
    if (!node.executed) suspects.push_back(&node);
    if (first == nullptr || node.sequence < first->sequence) first = &node;
  }
  if (suspects.empty() && first != nullptr) suspects.push_back(first);
  return suspects;
}

}  // namespace

void NoteLoss(State& r, const absl::Status& cause) {
  ConnectionState& c = r.connection;
  // Clears runs that the worker survived, whatever its end.
  const std::vector<Node*> suspects = Suspects(r);
  if (!MeansDeath(cause)) return;
  const std::string reason = ErrorReason(cause);
  const bool unlikely = c.facts.executor_per_tenant &&
                        reason != "EXECUTOR_LOST_IN_TURN" &&
                        reason != kNoProgress;
  for (Node* const suspect : suspects) {
    suspect->suspicion +=
        unlikely ? RecoveryState::kUnlikelyDeath : RecoveryState::kDeath;
    if (suspect->suspicion < RecoveryState::kGivenUp) continue;
    const std::string text =
        absl::StrCat("each worker was lost before it had executed ",
                     DescribeRun(*KeptOf(*suspect)),
                     ", the only run of the device "
                     "that the last one, ",
                     c.lease.worker_id(), ", had");
    TaintByRootError(r, suspect,
                     MakeError(absl::StatusCode::kAborted, "RUN_KILLS_WORKERS",
                               text, {{"worker", c.lease.worker_id()}}));
  }
}

}  // namespace djinn::replica
