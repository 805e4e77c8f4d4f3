// Room for the first in line.
//
// Who asks for much would wait for as long as others, who ask for less, take
// whatever becomes free. So once the first of those that wait for room has
// waited for as long as the line is patient, one worker is kept for it: the one
// reservation of EASY backfilling (Lifka 1995). Nobody else gets that worker
// but who is of a more urgent class; all others are free to everybody. It ends
// when whom it is for has got a worker, that one or another, or does not wait
// for room any more. So one worker is kept at most, and for nobody for longer
// than a request may wait.
//
// Kept is, of the workers where it would fit if nobody else were there, the one
// with most room now: how long those stay who are there nobody knows.
//
// Besides, room that others had to give up for somebody in the line is kept for
// that one, whoever else comes and however urgent: they gave it up for nobody
// else. That ends likewise, or when the worker is gone or cordoned.
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
#include "scheduler/fairness/waiting_line.h"
#include "scheduler/placement/fleet.h"
#include "scheduler/placement/request.h"

namespace djinn::scheduler {

class Reservation {
 public:
  using Ticket = WaitingLine::Ticket;
  // One that waits for room on a worker, and for nothing else.
  struct Waiter {
    // As in the line: greater goes first.
    int urgency = 0;
    absl::Duration since;
  };
  // Nothing when the ticket does not wait for room.
  using Waits = absl::FunctionRef<std::optional<Waiter>(Ticket ticket)>;
  // What a ticket asks for that waits for room.
  using RequestOf = absl::FunctionRef<Request(Ticket ticket)>;

  explicit Reservation(absl::Duration patience) : patience_(patience) {}

  // Who is the first that one is kept for; 0 while none is.
  Ticket ticket() const { return ticket_; }
  // Empty while none is.
  const std::string& worker_id() const { return worker_id_; }

  // Others give up room there for the ticket, which is in the line. What was
  // kept for it before is others'.
  void Keep(Ticket ticket, const std::string& worker_id);
  // Says in a request what is kept, for it or for another one. `ticket` is 0
  // when it is not in the line.
  void Apply(Ticket ticket, int urgency, Request* request) const;
  // When those of the line were tried that are in `order`, the first in front:
  // keeps a worker for the first that waits for room, if it is time. One that
  // is kept is given up when it is not wanted any more, and exchanged for
  // another one when it is no longer fit.
  void Review(absl::Span<const Ticket> order, Waits waits, RequestOf request_of,
              const Fleet& fleet, absl::Duration now);
  // The ticket has left the line, with a worker or without. Whether one was
  // kept for it: others may have that now.
  bool Lift(Ticket ticket);

 private:
  // Where nothing is fit for the first, the next one's turn is.
  static constexpr int kMostChoices = 4;

  // The worker to be kept for the request; null when none is fit.
  static const Fleet::Member* Choose(const Request& request,
                                     const Fleet& fleet);

  const absl::Duration patience_;
  Ticket ticket_ = 0;
  int urgency_ = 0;
  uint64_t asked_bytes_ = 0;
  std::string worker_id_;
  // Where others gave up room for a ticket.
  absl::flat_hash_map<Ticket, std::string> given_up_;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_RESERVATION_H_
