#include "coordinator/cluster/placement/phases.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "coordinator/cluster/leases/notifications.h"
#include "coordinator/tables/work_table.h"
#include "djinn/v1/notes.pb.h"
#include "scheduler/placement/work.h"

namespace djinn::coordinator::phases {
namespace {

// Most phases in one message to a worker. The phases of the last graph in the
// message may exceed this number.
constexpr int kMaxPhasesAtOnce = 1024;

v1::GraphPhase ToGraphPhase(const scheduler::Work& work) {
  v1::GraphPhase phase;
  phase.set_phase(static_cast<v1::Phase>(work.phase()));
  phase.mutable_cache_slots()->Assign(work.cache_slots().begin(),
                                      work.cache_slots().end());
  return phase;
}

bool IsKnown(const v1::GraphPhase& phase) {
  return phase.phase() != v1::PHASE_UNSPECIFIED || phase.cache_slots_size() > 0;
}

// Returns the graph's known phases: first the one that it shows without a
// program, then those that single tenants see.
std::vector<v1::GraphPhase> PhasesOfGraph(ClusterState& state,
                                          const std::string& fingerprint)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  std::vector<v1::GraphPhase> phases;
  const auto* const graph = state.known.works.FindGraph(fingerprint);
  if (graph == nullptr) return phases;
  if (graph->shown != nullptr) {
    v1::GraphPhase shown = ToGraphPhase(*graph->shown);
    if (IsKnown(shown)) phases.push_back(std::move(shown));
  }
  // Names tenants together to whom the graph is alike.
  const size_t first = phases.size();
  std::vector<SharedWork> unlike;
  for (const auto& [tenant, work] : graph->own) {
    size_t kind = 0;
    while (kind < unlike.size() && !AreAlike(unlike[kind], work)) ++kind;
    if (kind == unlike.size()) {
      v1::GraphPhase own = ToGraphPhase(*work);
      if (!IsKnown(own)) continue;
      unlike.push_back(work);
      phases.push_back(std::move(own));
    }
    phases[first + kind].add_tenants(tenant);
  }
  return phases;
}

}  // namespace

void NoteUntold(ClusterState& state, Worker* worker, Wakes* wakes) {
  // Tell() adds a graph again once its phase is known.
  absl::erase_if(worker->load.untold,
                 [&](const std::string& fingerprint)
                     ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
                       return PhasesOfGraph(state, fingerprint).empty();
                     });
  if (!worker->load.untold.empty()) notifications::Touch(worker, wakes);
}

void List(ClusterState& state, Worker* worker, v1::DesiredState* desired) {
  absl::erase_if(
      worker->load.untold,
      [&](const std::string& fingerprint)
          ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
            if (desired->graph_phases_size() >= kMaxPhasesAtOnce) return false;
            for (v1::GraphPhase& known : PhasesOfGraph(state, fingerprint)) {
              known.set_fingerprint(fingerprint);
              *desired->add_graph_phases() = std::move(known);
            }
            return true;
          });
  // The rest follows in the next message, at once.
  if (!worker->load.untold.empty()) worker->link.dirty = true;
}

void Tell(ClusterState& state, const std::string& fingerprint, Wakes* wakes) {
  // A worker that has not reported the graph yet learns its phase when it does.
  for (Worker* const worker : state.workers.WithGraph(fingerprint)) {
    worker->load.untold.insert(fingerprint);
    notifications::Touch(worker, wakes);
  }
}

}  // namespace djinn::coordinator::phases
