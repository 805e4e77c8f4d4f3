// Holds one executor of a supervisor. Included by supervisor.h's sources alone.
#ifndef GPU_WORKER_SUPERVISOR_EXECUTOR_RECORD_H_
#define GPU_WORKER_SUPERVISOR_EXECUTOR_RECORD_H_

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/transport/shared_memory/shared_region.h"
#include "djinn/v1/supervision.pb.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gpu_worker/supervisor/executor_log.h"
#include "gpu_worker/supervisor/frames.h"
#include "gpu_worker/supervisor/launcher.h"
#include "gpu_worker/supervisor/relay.h"

namespace djinn::worker {

// One process, or one that is due to start.
struct ExecutorRecord {
  uint64_t number = 0;
  ExecutorListeners listeners;
  // Empty for the spare one.
  std::string tenant;
  // Before it is launched, the time at which it may be; afterwards, when it
  // was.
  absl::Duration start;
  // 0 before it is launched.
  pid_t pid = 0;
  Descriptor socket;
  // Belongs to the thread of Step().
  ExecutorLog log;
  // Serve what it fetches and its contents; null when nothing does. Released
  // without locks.
  std::shared_ptr<void> fetching;
  std::shared_ptr<void> contents;
  bool ready = false;
  // True when the supervisor has asked it to end.
  bool ending = false;
  // True when the supervisor ends it for what it does or does not do.
  bool overdue = false;
  FrameReader reader;
  std::string unsent;
  // Revision of the last orders.
  uint64_t revision = 0;
  // Whether the executor has begun the last stream of revisions: it has
  // reported everything since.
  bool restarted = false;
  RelayedLeases leases;
  // Session ids by the ids of the questions that it was asked last.
  std::map<uint64_t, std::string> questions;
  ExecutorReport report;
  uint64_t refused_calls = 0;
  // As it reported them last.
  v1::ExecutorMetrics metrics;
  // The last mark of its turn, and the time for which it has stayed the same;
  // see ExecutorHealth.
  uint64_t mark = 0;
  absl::Duration same_mark;
  // The tenant's own limit of a node, as its newest lease has it.
  absl::Duration node_limit = absl::InfiniteDuration();
  // See ExecutorHealth.
  uint64_t available_bytes = 0;
  // Time since its last message.
  absl::Duration silent;
  // Time for which it has been ready and the supervisor has run; measures how
  // long it keeps leases.
  absl::Duration lived;
  // When orders were sent to it last, by `lived`.
  absl::Duration renewed;
  // Leases that it was told to drop, and the latest time by `lived` at which it
  // has.
  std::map<std::string, absl::Duration> leaving;
  // Set when it must end.
  absl::Status fault;
  // The lease for which it must end; empty if there is another reason.
  std::string kept_lease;
  // Messages and bytes that it sent recently (limits.h).
  double messages = 0;
  double bytes = 0;
  // Spans that it sent recently (limits.h).
  double spans = 0;

  // Queues the message, which Step() sends.
  void Send(const v1::ToExecutor& message) { unsent += EncodeFrame(message); }
  // Queues orders under the next revision.
  void SendOrders(v1::DesiredState orders) {
    orders.set_revision(++revision);
    renewed = lived;
    v1::ToExecutor message;
    *message.mutable_desired() = std::move(orders);
    Send(message);
  }
  bool HasSession(const std::string& session_id) const {
    return std::any_of(leases.begin(), leases.end(), [&](const auto& lease) {
      return lease.second.session_id == session_id;
    });
  }
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_EXECUTOR_RECORD_H_
