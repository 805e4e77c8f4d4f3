// What workers are told of the work that their graphs are.
#include <string>

#include "coordinator/cluster.h"

namespace djinn::coordinator {
namespace {

// In one message to a worker.
constexpr int kMaxPhasesAtOnce = 1024;

}  // namespace

v1::Phase Cluster::PhaseOfGraph(const std::string& fingerprint) {
  const SharedWork work = works_.OfStructure(fingerprint);
  return work == nullptr ? v1::PHASE_UNSPECIFIED
                         : static_cast<v1::Phase>(work->phase());
}

void Cluster::NotePhasesToTell(Worker* worker, Wakes* wakes) {
  if (worker->has_phases_to_hear) return;
  for (const auto& [fingerprint, runs] : worker->graphs) {
    if (runs.phase_told || PhaseOfGraph(fingerprint) == v1::PHASE_UNSPECIFIED) {
      continue;
    }
    worker->has_phases_to_hear = true;
    Touch(worker, wakes);
    return;
  }
}

void Cluster::TellPhases(Worker* worker, v1::DesiredState* desired) {
  if (!worker->has_phases_to_hear) return;
  for (auto& [fingerprint, runs] : worker->graphs) {
    if (runs.phase_told) continue;
    const v1::Phase phase = PhaseOfGraph(fingerprint);
    if (phase == v1::PHASE_UNSPECIFIED) continue;
    if (desired->graph_phases_size() == kMaxPhasesAtOnce) {
      // The rest in the next message, at once.
      worker->dirty = true;
      return;
    }
    v1::GraphPhase* const known = desired->add_graph_phases();
    known->set_fingerprint(fingerprint);
    known->set_phase(phase);
    runs.phase_told = true;
  }
  worker->has_phases_to_hear = false;
}

void Cluster::TellPhaseTo(const Session& session,
                          const std::string& fingerprint, Wakes* wakes) {
  for (const Lease* lease : leases_.OfSession(session.id)) {
    Worker* const worker = workers_.Find(lease->worker_id);
    const auto found = worker->graphs.find(fingerprint);
    // One that has not reported it yet hears of it when it does.
    if (found == worker->graphs.end()) continue;
    found->second.phase_told = false;
    worker->has_phases_to_hear = true;
    Touch(worker, wakes);
  }
}

}  // namespace djinn::coordinator
