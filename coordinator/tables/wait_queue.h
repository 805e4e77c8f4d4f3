// Lease requests that wait for a worker.
//
// Invariant: a pending request has a ticket exactly when it is in `unplaced`
// and in `line`. Guarded by the cluster's lock.
#ifndef COORDINATOR_TABLES_WAIT_QUEUE_H_
#define COORDINATOR_TABLES_WAIT_QUEUE_H_

#include <map>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/queue_stops.h"
#include "scheduler/fairness/wait_queue.h"
#include "scheduler/placement/reservation.h"

namespace djinn::coordinator {

struct WaitQueue {
  explicit WaitQueue(absl::Duration patience) : reservation(patience) {}

  // The order in which requests without an offered lease are tried, and the
  // session and member of each.
  scheduler::WaitQueue line;
  std::map<scheduler::WaitQueue::Ticket, std::pair<std::string, MemberId>>
      unplaced;
  // The worker that is reserved for the first request.
  scheduler::Reservation reservation;
  // Tenants whose requests are not tried because an operator stopped their
  // queues.
  QueueStops stops;
  // True when something may have become free since the requests were tried.
  bool untried = false;
  // Monotonic time from which a worker's report may have them tried again.
  absl::Duration next_retry;
  // Monotonic time from which memory to take back may be searched again.
  absl::Duration next_room_look;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_WAIT_QUEUE_H_
