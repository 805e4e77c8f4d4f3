#include "scheduler/placement/reservation.h"

#include <tuple>

#include "scheduler/placement/filters.h"

namespace djinn::scheduler {

void Reservation::Apply(Ticket ticket, int urgency, Request* request) const {
  if (ticket_ == 0) return;
  request->kept_for_this = ticket == ticket_;
  if (request->kept_for_this || urgency <= urgency_) {
    request->kept_worker = worker_id_;
  }
}

void Reservation::Review(absl::Span<const Ticket> order, Waits waits,
                         RequestOf request_of, const Fleet& fleet,
                         absl::Duration now) {
  if (ticket_ != 0) {
    const std::optional<Waiter> waiter = waits(ticket_);
    if (waiter.has_value()) {
      urgency_ = waiter->urgency;
      const Fleet::Member* kept = fleet.Find(worker_id_);
      if (kept == nullptr || kept->facts.cordoned ||
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
    if (!waiter.has_value()) continue;
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
  if (ticket_ == 0 || ticket != ticket_) return false;
  ticket_ = 0;
  worker_id_.clear();
  return true;
}

const Fleet::Member* Reservation::Choose(const Request& request,
                                         const Fleet& fleet) {
  // Nothing is missing where nobody is.
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
