// Gives jobs their workers, by a decision or through the wait queue.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "common/base/error.h"
#include "scheduler/simulator/simulation.h"

namespace djinn::scheduler {
namespace {

// Interval at which the coordinator tries waiting requests without a reason.
constexpr double kTickSeconds = 0.2;

}  // namespace

StateKey Simulation::KeyOf(const SimulatedJob& job) {
  const auto [it, added] =
      keys_.try_emplace(std::make_pair(job.tenant, job.state), keys_.size());
  return it->second;
}

Request Simulation::RequestOf(size_t index) {
  const SimulatedJob& job = trace_.jobs[index];
  Request request;
  request.phase = job.work.phase;
  request.asked_bytes = job.state_bytes;
  if (job.has_state()) request.state = {{KeyOf(job), job.state_bytes}};
  reservation_.Apply(runs_[index].ticket, InLine(job), &request);
  return request;
}

bool Simulation::TryPlace(size_t index) {
  switch (CheckQuota(index)) {
    case QuotaVerdict::kMay:
      break;
    case QuotaVerdict::kWaits:
      WaitForQuota(index);
      return false;
    case QuotaVerdict::kNever:
      RefuseByQuota(index);
      LeaveLine(index);
      return true;
  }
  Work work;
  work.Add(trace_.jobs[index].work);
  Request request = RequestOf(index);
  request.work = &work;
  const Decision decision =
      Place(request, fleet_, policy_, factors_, &draws_, options_.placement);
  ++result_.decisions;
  result_.looked_at += decision.looked_at;
  if (absl::IsFailedPrecondition(decision.obstacle)) {
    EndQuotaWait(index);
    LeaveLine(index);
    return true;
  }
  Run& run = runs_[index];
  if (decision.worker_id.empty()) {
    EndQuotaWait(index);
    run.waits_for_room = ErrorReason(decision.obstacle) == "NO_CAPACITY";
    JoinLine(index);
    if (run.waits_for_room) ReclaimRoom(index, request);
    return false;
  }
  if (!ReclaimQuota(index)) {
    WaitForQuota(index);
    return false;
  }
  EndQuotaWait(index);
  line_.Serve(run.ticket, Now());
  LeaveLine(index);
  line_.Charge(TenantOf(index).name, WaitQueue::kTurn, Now());
  Assign(index, index_.at(decision.worker_id),
         decision.considered.front().terms);
  return true;
}

void Simulation::Arrive(size_t index) {
  if (!freed_ || line_.empty()) {
    TryPlace(index);
    return;
  }
  // Capacity that has become free meanwhile goes to the jobs that waited for
  // it.
  JoinLine(index);
  if (line_.size() <= WaitQueue::kMaxTriedAtOnce) RetrySome();
}

void Simulation::JoinLine(size_t index) {
  const SimulatedJob& job = trace_.jobs[index];
  Run& run = runs_[index];
  if (run.ticket != 0) return;
  run.ticket =
      line_.Join({.tenant = TenantOf(index).name,
                  .urgency = InLine(job),
                  .due = absl::Seconds(run.asked + job.run_deadline_seconds),
                  .returns = run.returns},
                 Now());
  in_line_[run.ticket] = index;
  const auto plan = [&](double after, Event::Kind kind) {
    if (std::isfinite(after)) Plan(run.asked + after, kind, index);
  };
  plan(trace_.line_patience_seconds, Event::Kind::kImpatient);
  plan(trace_.lease_request_timeout_seconds, Event::Kind::kExpired);
}

void Simulation::LeaveLine(size_t index) {
  Run& run = runs_[index];
  const bool lifted = reservation_.Lift(run.ticket);
  line_.Leave(run.ticket, Now());
  in_line_.erase(run.ticket);
  run.ticket = 0;
  if (lifted) NoteFreed();
}

void Simulation::NoteFreed() {
  freed_ = true;
  untried_ = line_.size();
  PlanTick();
}

void Simulation::Retry() {
  untried_ = line_.size();
  RetrySome();
}

void Simulation::RetrySome() {
  freed_ = false;
  if (line_.empty()) return;
  const std::vector<Ticket> tried = line_.Try(
      Now(),
      [this](const std::string& tenant) { return quotas_.Precedence(tenant); },
      [&](Ticket ticket) {
        const auto waiting = in_line_.find(ticket);
        return waiting == in_line_.end() || TryPlace(waiting->second);
      });
  untried_ -= std::min(untried_, WaitQueue::kMaxTries / 2);
  ReviewReservation(tried);
  if (untried_ > 0) PlanTick();
}

void Simulation::ReviewReservation(const std::vector<Ticket>& tried) {
  const Ticket before = reservation_.ticket();
  reservation_.Review(
      tried,
      [this](Ticket ticket) -> std::optional<Reservation::Waiter> {
        const auto waiting = in_line_.find(ticket);
        if (waiting == in_line_.end() ||
            !runs_[waiting->second].waits_for_room) {
          return std::nullopt;
        }
        return Reservation::Waiter{InLine(trace_.jobs[waiting->second]),
                                   absl::Seconds(runs_[waiting->second].asked)};
      },
      [this](Ticket ticket) { return RequestOf(in_line_.at(ticket)); }, fleet_,
      Now());
  const Ticket after = reservation_.ticket();
  if (after != 0 && after != before) ++result_.reservations;
}

void Simulation::PlanTick() {
  if (tick_planned_ || line_.empty()) return;
  tick_planned_ = true;
  Plan(now_ + kTickSeconds, Event::Kind::kTick, /*job=*/0);
}

}  // namespace djinn::scheduler
