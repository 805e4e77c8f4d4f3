#include "scheduler/placement/reservation.h"

#include <tuple>

#include "scheduler/placement/filters.h"

namespace djinn::scheduler {

void Reservation::Apply(Ticket ticket, int urgency, Request* request) const {
  if (ticket_ != 0 && ticket == ticket_) {
    request->kept_for_this = worker_id_;
    request->kept_because = "as the first in line";
  } else if (ticket_ != 0 && urgency <= urgency_) {
    request->kept_for_others[worker_id_] = "is kept for the first in line";
  }
  for (const auto& [other, worker_id] : given_up_) {
    if (other == ticket) {
      request->kept_for_this = worker_id;
      request->kept_because = "since others gave up room there";
    } else {
      request->kept_for_others[worker_id] =
          "is kept for whom others gave up room there";
    }
  }
}

void Reservation::Keep(Ticket ticket, const std::string& worker_id) {
  Lift(ticket);
  given_up_[ticket] = worker_id;
}

void Reservation::Review(absl::Span<const Ticket> order, Waits waits,
                         RequestOf request_of, const Fleet& fleet,
                         absl::Duration now) {
  absl::erase_if(given_up_, [&](const auto& entry) {
    const Fleet::Member* const kept = fleet.Find(entry.second);
    return kept == nullptr || kept->facts.cordoned ||
           !kept->facts.failure.empty();
  });
  if (ticket_ != 0) {
    const std::optional<Waiter> waiter = waits(ticket_);
    if (waiter.has_value()) {
      urgency_ = waiter->urgency;
      const Fleet::Member* kept = fleet.Find(worker_id_);
      if (kept == nullptr || kept->facts.cordoned ||
          !kept->facts.failure.empty() ||
          kept->facts.memory_bytes < asked_bytes_) {
        kept = Choose(request_of(ticket_), fleet);
      }
      if (kept != nullptr) {
        worker_id_ = kept->facts.id;
        return;
      }
    }
    Lift(ticket_);
  }
  int choices = 0;
  for (const Ticket ticket : order) {
    const std::optional<Waiter> waiter = waits(ticket);
    if (!waiter.has_value() || given_up_.contains(ticket)) continue;
    if (now - waiter->since < patience_ || ++choices > kMostChoices) return;
    const Request request = request_of(ticket);
    const Fleet::Member* const kept = Choose(request, fleet);
    if (kept == nullptr) continue;
    ticket_ = ticket;
    urgency_ = waiter->urgency;
    asked_bytes_ = request.asked_bytes;
    worker_id_ = kept->facts.id;
    return;
  }
}

bool Reservation::Lift(Ticket ticket) {
  if (ticket == 0) return false;
  const bool given_up = given_up_.erase(ticket) > 0;
  if (ticket != ticket_) return given_up;
  ticket_ = 0;
  worker_id_.clear();
  return true;
}

const Fleet::Member* Reservation::Choose(const Request& request,
                                         const Fleet& fleet) {
  // The terms of an empty worker.
  constexpr Terms kEmpty;
  const Fleet::Member* best = nullptr;
  for (const Fleet::Member* const member : fleet.all()) {
    const WorkerFacts& facts = member->facts;
    if (facts.memory_bytes < request.asked_bytes) continue;
    const auto rank = [](const WorkerFacts& worker) {
      return std::make_tuple(~worker.available_bytes, worker.leases,
                             absl::string_view(worker.id));
    };
    if (best != nullptr && rank(best->facts) < rank(facts)) continue;
    if (!Filter(request, facts, kEmpty).has_value()) best = member;
  }
  return best;
}

}  // namespace djinn::scheduler
