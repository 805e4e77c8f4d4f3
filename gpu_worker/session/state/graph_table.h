// What the client of one session has defined, by the ids that it chose: for
// each graph what it is called in the graph cache, whose the plans are, and
// the runs of it that later ones may repeat.
//
// The cache may let go of a plan. A run that finds none has to wait until the
// client has supplied the graph once more (Supply()); from then on the plan
// is held, for that run, until ForgetSupplied().
//
// Not thread-safe: belongs to whoever executes the session. What a client may
// not do is InvalidArgument (PROTOCOL_VIOLATION) and ends the session, whatever
// was done before.
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
    // One of the two. The plan itself is the graph cache's.
    std::string fingerprint;
    RootError refused;
    std::vector<RememberedRun> remembered;  // by place
    // As last noted.
    v1::Phase phase = v1::PHASE_UNSPECIFIED;
  };
  struct Defined {
    // Stays valid until another one is defined or forgotten.
    Graph* graph = nullptr;
    // Not OK: why it is refused, of which the caller makes a root error.
    absl::StatusOr<Admitted> admitted;
  };

  // `environment` outlives it.
  GraphTable(const SessionEnvironment* environment, std::string tenant,
             size_t max_graphs)
      : environment_(*environment),
        tenant_(std::move(tenant)),
        max_graphs_(max_graphs) {}

  // A violation for an id that was used, or for one graph too many.
  absl::StatusOr<Defined> Define(const v1::DefineGraph& define);
  // A violation when it is not defined.
  absl::Status Forget(uint64_t id);
  // Null when it is not defined.
  Graph* Find(uint64_t id);

  // At the run's size; null when the client has to supply the graph. A
  // violation when there is no plan at that size.
  absl::StatusOr<std::shared_ptr<const Plan>> PlanOf(const Graph& graph,
                                                     const v1::Run& run);
  // A graph that is defined, once more. A violation when it is another one.
  absl::Status Supply(const v1::DefineGraph& supply);
  bool supplied() const { return supplied_plan_ != nullptr; }
  void ForgetSupplied() { supplied_plan_ = nullptr; }
  // How long plans took that were made for runs since the last call.
  absl::Duration TakePlanningTime() { return std::exchange(planning_, {}); }

  // Of a run that is about to begin: keeps what it says for repeats, if it is
  // to be kept, or forgets what the graph had. When what it makes ceases to
  // be, until the next run. A violation when it is too much to keep.
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
  // Over all of them.
  size_t remembered_slots_ = 0;
  // Null unless a run waited for it.
  std::shared_ptr<const Plan> supplied_plan_;
  // Of the last run, if it is not remembered.
  Lifetimes lifetimes_;
  absl::Duration planning_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_GRAPH_TABLE_H_
