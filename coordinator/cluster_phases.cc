// What workers are told of the work that their graphs are, and of what these
// keep.
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "coordinator/cluster.h"

namespace djinn::coordinator {
namespace {

// In one message to a worker.
constexpr int kMaxPhasesAtOnce = 1024;

bool IsKnown(const v1::GraphPhase& phase) {
  return phase.phase() != v1::PHASE_UNSPECIFIED || phase.cache_slots_size() > 0;
}

}  // namespace

v1::GraphPhase Cluster::PhaseOfGraph(const std::string& fingerprint) {
  const SharedWork work = works_.OfStructure(fingerprint);
  v1::GraphPhase phase;
  if (work == nullptr) return phase;
  phase.set_phase(static_cast<v1::Phase>(work->phase()));
  phase.mutable_cache_slots()->Assign(work->cache_slots().begin(),
                                      work->cache_slots().end());
  return phase;
}

void Cluster::NotePhasesToTell(Worker* worker, Wakes* wakes) {
  // What is not known yet comes back when it is.
  absl::erase_if(worker->untold, [&](const std::string& fingerprint) {
    return !IsKnown(PhaseOfGraph(fingerprint));
  });
  if (!worker->untold.empty()) Touch(worker, wakes);
}

void Cluster::TellPhases(Worker* worker, v1::DesiredState* desired) {
  absl::erase_if(worker->untold, [&](const std::string& fingerprint) {
    if (desired->graph_phases_size() == kMaxPhasesAtOnce) return false;
    v1::GraphPhase known = PhaseOfGraph(fingerprint);
    if (!IsKnown(known)) return true;
    known.set_fingerprint(fingerprint);
    *desired->add_graph_phases() = std::move(known);
    return true;
  });
  // The rest in the next message, at once.
  if (!worker->untold.empty()) worker->dirty = true;
}

void Cluster::TellPhase(const std::string& fingerprint, Wakes* wakes) {
  // One that has not reported it yet hears of it when it does.
  for (Worker* const worker : workers_.WithGraph(fingerprint)) {
    worker->untold.insert(fingerprint);
    Touch(worker, wakes);
  }
}

}  // namespace djinn::coordinator
