// Reserves room for the first request in the queue (EASY backfilling, Lifka
// 1995).
//
// A request for much memory would wait for as long as smaller requests take all
// memory that becomes free. Once the first request that waits for room has
// waited for the configured patience, one worker is reserved for it. Only
// requests of a higher priority class may still get that worker; all other
// workers stay free to every request. The reservation ends when its request got
// any worker, or no longer waits for room. At most one worker is reserved, for
// at most as long as a request may wait.
//
// The reserved worker is the one with most available room among the workers on
// which the request would fit if they were empty, because it is unknown how
// long the present leases stay.
//
// In addition, room that leases gave up for a waiting request (reclaim) is kept
// for that request, whatever the priority of others. That reservation ends in
// the same way, or when the worker is gone or cordoned.
//
// Pure logic, not thread-safe.
#ifndef SCHEDULER_PLACEMENT_RESERVATION_H_
#define SCHEDULER_PLACEMENT_RESERVATION_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "scheduler/fairness/wait_queue.h"
#include "scheduler/placement/fleet.h"
#include "scheduler/placement/terms.h"

namespace djinn::scheduler {

class Reservation {
 public:
  using Ticket = WaitQueue::Ticket;
  // A request that only waits for room on a worker.
  struct Waiter {
    // A greater priority class is first, as in the queue.
    int urgency = 0;
    absl::Duration since;
  };
  // Returns the waiting request, or nothing when it does not wait for room.
  using Waits = absl::FunctionRef<std::optional<Waiter>(Ticket ticket)>;
  // Returns the placement request of a ticket that waits for room.
  using RequestOf = absl::FunctionRef<Request(Ticket ticket)>;

  explicit Reservation(absl::Duration patience) : patience_(patience) {}

  // Returns the request that has the reservation; 0 without one.
  Ticket ticket() const { return ticket_; }
  // Returns the reserved worker; empty without one.
  const std::string& worker_id() const { return worker_id_; }

  // Reserves the room that other leases give up on this worker for the waiting
  // request. Ends a previous reservation of the same kind.
  void Keep(Ticket ticket, const std::string& worker_id);
  // Writes all reservations into a placement request. `ticket` is 0 when the
  // request is not in the queue.
  void Apply(Ticket ticket, int urgency, Request* request) const;
  // Updates the reservation after the requests in `order` were tried, the first
  // one in front: reserves a worker for the first that waits for room, if it
  // has waited long enough. Ends a reservation that is no longer needed, and
  // replaces a worker that is no longer suitable.
  void Review(absl::Span<const Ticket> order, Waits waits, RequestOf request_of,
              const Fleet& fleet, absl::Duration now);
  // Ends the reservations of a request that left the queue. Returns whether
  // there was one, so that other requests can be tried.
  bool Lift(Ticket ticket);

 private:
  // Number of requests from the front that may get the reservation when no
  // worker is suitable for those before them.
  static constexpr int kMostChoices = 4;

  // Returns the worker to reserve for the request; null when none is suitable.
  static const Fleet::Member* Choose(const Request& request,
                                     const Fleet& fleet);

  const absl::Duration patience_;
  Ticket ticket_ = 0;
  int urgency_ = 0;
  uint64_t asked_bytes_ = 0;
  std::string worker_id_;
  // Workers on which room was given up, by request.
  absl::flat_hash_map<Ticket, std::string> given_up_;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_RESERVATION_H_
