// What the cluster is asked to do, by what workers report and sessions wait
// for.
#include "coordinator/cluster_demand.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/error.h"
#include "coordinator/cluster.h"
#include "scheduler/placement/work.h"

namespace djinn::coordinator {
namespace {

absl::Status Blind(absl::string_view why) {
  return MakeError(absl::StatusCode::kUnavailable, "DEMAND_UNKNOWN", why);
}

size_t PhaseOf(const SharedWork& work) {
  return static_cast<size_t>(work == nullptr ? semantics::Phase::kUnspecified
                                             : work->phase());
}

}  // namespace

void Cluster::AbsorbDemand(Worker* worker) {
  const absl::Duration now = clock_->Monotonic();
  for (const Worker::Ran& ran : worker->ran) {
    arrivals_.Add(static_cast<semantics::Phase>(
                      PhaseOf(works_.OfStructure(ran.fingerprint))),
                  ran.time, now);
  }
  scheduler::PhaseAmounts queued = {};
  for (const auto& [lease_id, held] : worker->held) {
    const Session* const session = sessions_.Find(held.session_id);
    if (session == nullptr) continue;
    queued[PhaseOf(WorkOf(*session))] +=
        held.use.queued_runs() * worker->seconds_per_run;
  }
  // What the queue grew by has arrived, too; what it fell by is among the runs.
  for (size_t phase = 0; phase < queued.size(); ++phase) {
    arrivals_.Add(static_cast<semantics::Phase>(phase),
                  absl::Seconds(queued[phase] - worker->queued_seconds[phase]),
                  now);
  }
  worker->queued_seconds = queued;
}

uint32_t Cluster::PhaseBit(const Session& session) const {
  static_assert(semantics::kPhaseCount <= 32);
  return 1u << PhaseOf(WorkOf(session));
}

uint32_t Cluster::PhasesAt(const Worker& worker) {
  uint32_t phases = 0;
  for (const Lease* lease : leases_.OfWorker(worker.id)) {
    phases |= PhaseBit(*sessions_.Find(lease->session_id));
  }
  return phases;
}

void Cluster::NoteServesOn(absl::Duration now, Worker* worker) {
  uint32_t phases = PhasesAt(*worker);
  // What it was to drop when it was here last it may still have.
  if (!worker->drops.empty()) phases |= worker->served_phases;
  worker->served_phases = phases;
  worker->serves_until =
      now + config_.lease_valid_for + config_.lease_grace_period;
}

absl::StatusOr<ClusterDemand> Cluster::Demand() {
  MutexLock lock(&mu_);
  return DemandLocked();
}

absl::StatusOr<ClusterDemand> Cluster::DemandLocked() {
  const absl::Duration now = clock_->Monotonic();
  if (now - begin_ < config_.worker_timeout) {
    return Blind(absl::StrCat("the coordinator began ",
                              absl::FormatDuration(now - begin_),
                              " ago, and does not know every worker yet"));
  }
  ClusterDemand demand;
  scheduler::DemandInputs inputs;
  inputs.arrival_rates = arrivals_.Rates(now);
  const auto keep = [&demand](uint32_t phases) {
    for (size_t phase = 0; phase < semantics::kPhaseCount; ++phase) {
      demand.kept_workers[phase] += phases >> phase & 1;
    }
    demand.all_kept_workers += phases != 0;
  };
  for (const auto& [id, worker] : workers_.all()) {
    if (worker->state != v1::WorkerInfo::ACTIVE) {
      if (now < worker->serves_until) keep(worker->served_phases);
      continue;
    }
    if (now - worker->last_report > config_.worker_timeout / 2) {
      return Blind(
          absl::StrCat("worker ", id, " has not reported for ",
                       absl::FormatDuration(now - worker->last_report)));
    }
    keep(PhasesAt(*worker));
    for (size_t phase = 0; phase < inputs.queued_seconds.size(); ++phase) {
      inputs.queued_seconds[phase] += worker->queued_seconds[phase];
    }
  }
  for (const auto& [worker_id, phases] : awaited_) keep(phases);
  for (const auto& [ticket, unplaced] : unplaced_) {
    const auto& [session_id, device] = unplaced;
    const Session& session = *sessions_.Find(session_id);
    const PendingLease& pending = session.pending.at(device);
    // What waits for quota would not get another worker.
    if (pending.decision.decision == nullptr && !WaitsInLine(pending)) continue;
    ++inputs.waiting_devices[PhaseOf(WorkOf(session))];
  }
  demand.devices = scheduler::Demand(inputs);
  return demand;
}

void Cluster::CollectDemand(Exposition* out) {
  const absl::StatusOr<ClusterDemand> demand = DemandLocked();
  // Whoever scales by these must not take what is not known for nothing.
  if (!demand.ok()) return;
  for (size_t phase = 0; phase < demand->devices.size(); ++phase) {
    const std::string name(
        scheduler::PhaseName(static_cast<semantics::Phase>(phase)));
    out->Gauge("djinn_scale_demand_devices",
               "Device-seconds of work that arrive in a second; none when that "
               "is not known.",
               demand->devices[phase], {{"phase", name}});
  }
  for (size_t phase = 0; phase < demand->devices.size(); ++phase) {
    const std::string name(
        scheduler::PhaseName(static_cast<semantics::Phase>(phase)));
    out->Gauge("djinn_scale_desired_workers",
               "Workers for that demand, those that hold sessions at least.",
               scheduler::DesiredWorkers(demand->devices[phase],
                                         config_.scaler.target_utilisation,
                                         demand->kept_workers[phase]),
               {{"phase", name}});
  }
}

}  // namespace djinn::coordinator
