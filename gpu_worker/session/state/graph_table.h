// The graphs that the client of one session has defined, by the ids that it
// chose. For each graph it keeps the fingerprint, by which the graph cache
// knows it, and the runs that later ones may repeat.
//
// The cache may evict a plan. A run that finds none waits until the client has
// supplied the graph once more (Supply()); from then on the table holds the
// plan for that run, until ForgetSupplied().
//
// Not thread-safe: the thread that executes the session owns it. A client's
// mistake is InvalidArgument (PROTOCOL_VIOLATION) and ends the session,
// whatever was done before.
#ifndef GPU_WORKER_SESSION_STATE_GRAPH_TABLE_H_
#define GPU_WORKER_SESSION_STATE_GRAPH_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "djinn/v1/execution.pb.h"
#include "djinn/v1/notes.pb.h"
#include "gpu_worker/plan/admission.h"
#include "gpu_worker/plan/bound_run.h"
#include "gpu_worker/plan/plan.h"
#include "gpu_worker/session/base/session_environment.h"
#include "gpu_worker/store/storage_table.h"

namespace djinn::worker {

class GraphTable {
 public:
  struct Graph {
    // Exactly one of the two is set. The graph cache owns the plan.
    std::string fingerprint;
    RootError refused;
    std::vector<RememberedRun> remembered;  // by place
    // The phase that was noted last.
    v1::Phase phase = v1::PHASE_UNSPECIFIED;
    // Whether a run of it is over.
    bool has_run = false;
  };
  struct Defined {
    // Valid until another graph is defined or forgotten.
    Graph* graph = nullptr;
    // An error says why the graph is refused. The caller makes a root error of
    // it.
    absl::StatusOr<Admitted> admitted;
  };

  // `environment` must outlive this.
  GraphTable(const SessionEnvironment* environment, std::string tenant,
             size_t max_graphs)
      : environment_(*environment),
        tenant_(std::move(tenant)),
        max_graphs_(max_graphs) {}

  // Defines a graph. Returns a violation for an id that was used, or for too
  // many graphs.
  absl::StatusOr<Defined> Define(const v1::DefineGraph& define);
  // Returns a violation when the graph is not defined.
  absl::Status Forget(uint64_t id);
  // Returns null when the graph is not defined.
  Graph* Find(uint64_t id);

  // Returns the plan at the run's size; null when the client has to supply the
  // graph. Returns a violation when there is no plan at that size.
  absl::StatusOr<std::shared_ptr<const Plan>> PlanOf(const Graph& graph,
                                                     const v1::Run& run);
  // Accepts a defined graph once more. Returns a violation when it is another
  // one.
  absl::Status Supply(const v1::DefineGraph& supply);
  bool supplied() const { return supplied_plan_ != nullptr; }
  void ForgetSupplied() { supplied_plan_ = nullptr; }
  // Returns how long it took to make plans for runs since the last call.
  absl::Duration TakePlanningTime() { return std::exchange(planning_, {}); }

  // Notes a run that is about to begin. Keeps its bindings for repeats, if it
  // is to be remembered, or forgets the runs of the graph, if the run says so.
  // Returns the lifetimes of the storages that the run creates, valid until the
  // next run, or a violation when there is too much to keep.
  absl::StatusOr<const Lifetimes*> Remember(const Plan& plan,
                                            const BoundRun& run, Graph* graph);

  size_t size() const { return graphs_.size(); }
  void Clear() { graphs_.clear(); }

 private:
  absl::StatusOr<Admitted> Admit(const v1::DefineGraph& define) const;
  void ForgetRuns(Graph* graph);

  const SessionEnvironment& environment_;
  const std::string tenant_;
  const size_t max_graphs_;
  absl::flat_hash_map<uint64_t, Graph> graphs_;
  UsedIds used_;
  // The sum over all graphs.
  size_t remembered_slots_ = 0;
  // Null unless a run waited for it.
  std::shared_ptr<const Plan> supplied_plan_;
  // The lifetimes of the last run, if it is not remembered.
  Lifetimes lifetimes_;
  absl::Duration planning_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_GRAPH_TABLE_H_
