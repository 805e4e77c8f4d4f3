// Gives jobs their workers, by a decision or through the wait queue.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "common/base/error.h"
#include "scheduler/simulator/simulation.h"

namespace djinn::scheduler::simulation {
namespace {

// Interval at which the coordinator tries waiting requests without a reason.
constexpr double kTickSeconds = 0.2;

int InLine(const SimulatedJob& job) {
  return static_cast<int>(job.class_in_line());
}

}  // namespace

StateKey KeyOf(State& s, const SimulatedJob& job) {
  const auto [it, added] =
      s.keys.try_emplace(std::make_pair(job.tenant, job.state), s.keys.size());
  return it->second;
}

Request RequestOf(State& s, size_t index) {
  const SimulatedJob& job = s.trace.jobs[index];
  Request request;
  request.phase = job.work.phase;
  request.asked_bytes = job.state_bytes;
  if (job.has_state()) request.state = {{KeyOf(s, job), job.state_bytes}};
  s.line.reservation.Apply(s.runs[index].ticket, InLine(job), &request);
  return request;
}

bool TryPlace(State& s, size_t index) {
  switch (CheckQuota(s, index)) {
    case QuotaVerdict::kMay:
      break;
    case QuotaVerdict::kWaits:
      WaitForQuota(s, index);
      return false;
    case QuotaVerdict::kNever:
      RefuseByQuota(s, index);
      LeaveLine(s, index);
      return true;
  }
  Work work;
  work.Add(s.trace.jobs[index].work);
  Request request = RequestOf(s, index);
  request.work = &work;
  const Decision decision = Place(request, s.fleet, s.policy, s.factors,
                                  &s.draws, s.options.placement);
  ++s.result.decisions;
  s.result.looked_at += decision.looked_at;
  if (absl::IsFailedPrecondition(decision.obstacle)) {
    EndQuotaWait(s, index);
    LeaveLine(s, index);
    return true;
  }
  Run& run = s.runs[index];
  if (decision.worker_id.empty()) {
    EndQuotaWait(s, index);
    run.waits_for_room = ErrorReason(decision.obstacle) == "NO_CAPACITY";
    JoinLine(s, index);
    if (run.waits_for_room) ReclaimRoom(s, index, request);
    return false;
  }
  if (!ReclaimQuota(s, index)) {
    WaitForQuota(s, index);
    return false;
  }
  EndQuotaWait(s, index);
  s.line.queue.Serve(run.ticket, Now(s));
  LeaveLine(s, index);
  s.line.queue.Charge(TenantOf(s, index).name, WaitQueue::kTurn, Now(s));
  Assign(s, index, s.index.at(decision.worker_id),
         decision.considered.front().terms);
  return true;
}

void Arrive(State& s, size_t index) {
  if (!s.line.freed || s.line.queue.empty()) {
    TryPlace(s, index);
    return;
  }
  // Capacity that has become free meanwhile goes to the jobs that waited for
  // it.
  JoinLine(s, index);
  if (s.line.queue.size() <= WaitQueue::kMaxTriedAtOnce) RetrySome(s);
}

void JoinLine(State& s, size_t index) {
  const SimulatedJob& job = s.trace.jobs[index];
  Run& run = s.runs[index];
  if (run.ticket != 0) return;
  run.ticket = s.line.queue.Join(
      {.tenant = TenantOf(s, index).name,
       .urgency = InLine(job),
       .due = absl::Seconds(run.asked + job.run_deadline_seconds),
       .returns = run.returns},
      Now(s));
  s.line.jobs[run.ticket] = index;
  const auto plan = [&](double after, Event::Kind kind) {
    if (std::isfinite(after)) Plan(s, run.asked + after, kind, index);
  };
  plan(s.trace.line_patience_seconds, Event::Kind::kImpatient);
  plan(s.trace.lease_request_timeout_seconds, Event::Kind::kExpired);
}

void LeaveLine(State& s, size_t index) {
  Run& run = s.runs[index];
  const bool lifted = s.line.reservation.Lift(run.ticket);
  s.line.queue.Leave(run.ticket, Now(s));
  s.line.jobs.erase(run.ticket);
  run.ticket = 0;
  if (lifted) NoteFreed(s);
}

void NoteFreed(State& s) {
  s.line.freed = true;
  s.line.untried = s.line.queue.size();
  PlanTick(s);
}

void Retry(State& s) {
  s.line.untried = s.line.queue.size();
  RetrySome(s);
}

void RetrySome(State& s) {
  s.line.freed = false;
  if (s.line.queue.empty()) return;
  const std::vector<Ticket> tried = s.line.queue.Try(
      Now(s),
      [&s](const std::string& tenant) { return s.quotas.Precedence(tenant); },
      [&](Ticket ticket) {
        const auto waiting = s.line.jobs.find(ticket);
        return waiting == s.line.jobs.end() || TryPlace(s, waiting->second);
      });
  s.line.untried -= std::min(s.line.untried, WaitQueue::kMaxTries / 2);
  ReviewReservation(s, tried);
  if (s.line.untried > 0) PlanTick(s);
}

void ReviewReservation(State& s, const std::vector<Ticket>& tried) {
  const Ticket before = s.line.reservation.ticket();
  s.line.reservation.Review(
      tried,
      [&s](Ticket ticket) -> std::optional<Reservation::Waiter> {
        const auto waiting = s.line.jobs.find(ticket);
        if (waiting == s.line.jobs.end() ||
            !s.runs[waiting->second].waits_for_room) {
          return std::nullopt;
        }
        return Reservation::Waiter{
            InLine(s.trace.jobs[waiting->second]),
            absl::Seconds(s.runs[waiting->second].asked)};
      },
      [&s](Ticket ticket) { return RequestOf(s, s.line.jobs.at(ticket)); },
      s.fleet, Now(s));
  const Ticket after = s.line.reservation.ticket();
  if (after != 0 && after != before) ++s.result.reservations;
}

void PlanTick(State& s) {
  if (s.line.tick_planned || s.line.queue.empty()) return;
  s.line.tick_planned = true;
  Plan(s, s.now + kTickSeconds, Event::Kind::kTick, /*job=*/0);
}

}  // namespace djinn::scheduler::simulation
