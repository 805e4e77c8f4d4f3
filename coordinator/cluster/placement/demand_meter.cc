#include "coordinator/cluster/placement/demand_meter.h"

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/error.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/work_table.h"
#include "djinn/v1/admin.pb.h"
#include "scheduler/placement/work.h"
#include "scheduler/scaling/demand.h"
#include "scheduler/semantics/cost/meaning.h"

namespace djinn::coordinator::demand {
namespace {

absl::Status Blind(absl::string_view why) {
  return MakeError(absl::StatusCode::kUnavailable, "DEMAND_UNKNOWN", why);
}

size_t PhaseOf(const SharedWork& work) {
  return static_cast<size_t>(work == nullptr ? semantics::Phase::kUnspecified
                                             : work->phase());
}

// Returns the phases of the work of sessions with leases at the worker, bit N
// for phase N.
uint32_t PhasesAt(ClusterState& state, const Worker& worker)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  uint32_t phases = 0;
  for (const Lease* lease : state.leases.OfWorker(worker.id)) {
    phases |= PhaseBit(state, *state.sessions.Find(lease->session_id));
  }
  return phases;
}

absl::StatusOr<ClusterDemand> Measure(ClusterState& state)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const absl::Duration now = state.clock->Monotonic();
  if (now - state.begin < state.config.worker_timeout) {
    return Blind(absl::StrCat("the coordinator began ",
                              absl::FormatDuration(now - state.begin),
                              " ago, and does not know every worker yet"));
  }
  ClusterDemand demand;
  scheduler::DemandInputs inputs;
  inputs.arrival_rates = state.known.arrivals.Rates(now);
  const auto keep = [&demand](uint32_t phases) {
    for (size_t phase = 0; phase < semantics::kPhaseCount; ++phase) {
      demand.kept_workers[phase] += phases >> phase & 1;
    }
    demand.all_kept_workers += phases != 0;
  };
  for (const auto& [id, worker] : state.workers.all()) {
    if (worker->state != v1::WorkerInfo::ACTIVE) {
      if (now < worker->serves_until) keep(worker->served_phases);
      continue;
    }
    if (now - worker->last_report > state.config.worker_timeout / 2) {
      return Blind(
          absl::StrCat("worker ", id, " has not reported for ",
                       absl::FormatDuration(now - worker->last_report)));
    }
    keep(PhasesAt(state, *worker));
    for (size_t phase = 0; phase < inputs.queued_seconds.size(); ++phase) {
      inputs.queued_seconds[phase] += worker->load.queued_seconds[phase];
    }
  }
  for (const auto& [worker_id, phases] : state.earlier.workers) keep(phases);
  for (const auto& [ticket, unplaced] : state.queue.unplaced) {
    const auto& [session_id, device] = unplaced;
    const Session& session = *state.sessions.Find(session_id);
    const PendingLease& pending = session.devices.pending.at(device);
    // A request that waits for quota would not use another worker, so it is no
    // demand.
    if (pending.decision.decision == nullptr && !WaitsInLine(pending)) continue;
    ++inputs.waiting_devices[PhaseOf(state.WorkOf(session))];
  }
  demand.devices = scheduler::Demand(inputs);
  return demand;
}

}  // namespace

void Absorb(ClusterState& state, Worker* worker) {
  const absl::Duration now = state.clock->Monotonic();
  for (const Worker::Ran& ran : worker->load.ran) {
    state.known.arrivals.Add(static_cast<semantics::Phase>(PhaseOf(
                                 state.known.works.OfGraph(ran.fingerprint))),
                             ran.time, now);
  }
  scheduler::PhaseAmounts queued = {};
  for (const std::string& lease_id : worker->leases.queueing) {
    const Worker::Held& held = worker->leases.held.at(lease_id);
    const Session* const session = state.sessions.Find(held.session_id);
    if (session == nullptr) continue;
    queued[PhaseOf(state.WorkOf(*session))] +=
        held.use.queued_runs() * worker->load.seconds_per_run;
  }
  // Growth of the queue counts as arrived work. Runs that left the queue count
  // among the executed runs, so their share is subtracted.
  for (size_t phase = 0; phase < queued.size(); ++phase) {
    state.known.arrivals.Add(
        static_cast<semantics::Phase>(phase),
        absl::Seconds(queued[phase] - worker->load.queued_seconds[phase]), now);
  }
  worker->load.queued_seconds = queued;
}

uint32_t PhaseBit(const ClusterState& state, const Session& session) {
  static_assert(semantics::kPhaseCount <= 32);
  return 1u << PhaseOf(state.WorkOf(session));
}

void NoteServesOn(ClusterState& state, absl::Duration now, Worker* worker) {
  uint32_t phases = PhasesAt(state, *worker);
  // The worker may still have sessions that it was told to drop.
  if (!worker->ends.drops.empty()) phases |= worker->served_phases;
  worker->served_phases = phases;
  worker->serves_until =
      now + state.config.lease_valid_for + state.config.lease_grace_period;
}

absl::StatusOr<ClusterDemand> Demand(ClusterState& state) {
  MutexLock lock(&state.mu);
  return Measure(state);
}

void Collect(ClusterState& state, Exposition* out) {
  const absl::StatusOr<ClusterDemand> demand = Measure(state);
  // A scaler must not take unknown demand for none.
  if (!demand.ok()) return;
  for (size_t phase = 0; phase < demand->devices.size(); ++phase) {
    const std::string name(
        scheduler::PhaseName(static_cast<semantics::Phase>(phase)));
    out->Gauge(
        "djinn_scale_demand_devices",
        "Device-seconds of work that arrive per second; absent while unknown.",
        demand->devices[phase], {{"phase", name}});
  }
  for (size_t phase = 0; phase < demand->devices.size(); ++phase) {
    const std::string name(
        scheduler::PhaseName(static_cast<semantics::Phase>(phase)));
    out->Gauge("djinn_scale_desired_workers",
               "Workers that djinn_scale_demand_devices needs, at least those "
               "that hold sessions.",
               scheduler::DesiredWorkers(demand->devices[phase],
                                         state.config.scaler.target_utilisation,
                                         demand->kept_workers[phase]),
               {{"phase", name}});
  }
}

}  // namespace djinn::coordinator::demand
