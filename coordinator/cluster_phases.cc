// What workers are told of the work that their graphs are.
#include <string>

#include "absl/container/flat_hash_set.h"
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
  // What is not known yet comes back when it is.
  absl::erase_if(worker->untold, [&](const std::string& fingerprint) {
    return PhaseOfGraph(fingerprint) == v1::PHASE_UNSPECIFIED;
  });
  if (!worker->untold.empty()) Touch(worker, wakes);
}

void Cluster::TellPhases(Worker* worker, v1::DesiredState* desired) {
  absl::erase_if(worker->untold, [&](const std::string& fingerprint) {
    if (desired->graph_phases_size() == kMaxPhasesAtOnce) return false;
    const v1::Phase phase = PhaseOfGraph(fingerprint);
    if (phase == v1::PHASE_UNSPECIFIED) return true;
    v1::GraphPhase* const known = desired->add_graph_phases();
    known->set_fingerprint(fingerprint);
    known->set_phase(phase);
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
