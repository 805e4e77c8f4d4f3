// Executes one run of a plan on a session's storages.
//
// Life of a run: CheckRun() first checks everything that the client said; a
// contradiction ends the session's stream and changes nothing. Then nodes run
// in order, each through the device's program (operator_library.h). A node that
// fails, or whose real result differs from the inferred one, poisons its
// outputs with a root error. A node that reads poison is skipped and passes the
// same error on. All other nodes run. Versions advance as the client stamped
// them, even after failures.
//
// Generators are never poisoned: a failed or skipped draw leaves their state
// unchanged.
//
// Each function runs in the caller's thread. Threads may call them at the same
// time with the same plan and memory, but each with its own session's storages.
#ifndef GPU_WORKER_PLAN_RUN_EXECUTOR_H_
#define GPU_WORKER_PLAN_RUN_EXECUTOR_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "gpu_worker/plan/bound_run.h"
#include "gpu_worker/plan/ongoing_run.h"
#include "gpu_worker/plan/plan.h"
#include "gpu_worker/plan/run_context.h"
#include "gpu_worker/store/root_errors.h"
#include "gpu_worker/store/storage_table.h"

namespace djinn::v1 {
class RunMetadata;
}  // namespace djinn::v1

namespace djinn::worker {

// Checks that `run` fits the plan and the storages. Returns InvalidArgument
// (PROTOCOL_VIOLATION) with the first contradiction.
absl::Status CheckRun(const Plan& plan, const BoundRun& run,
                      const StorageTable& storages);

// Checks a run whose graph was refused: only its bindings.
absl::Status CheckRefusedRun(const BoundRun& run, const StorageTable& storages);

// Executes a run that passed CheckRun(). `lifetimes` are those of its final
// slots. Fills `metadata` if the plan has unknown results.
void ExecuteRun(const Plan& plan, const BoundRun& run,
                const Lifetimes& lifetimes, const RunContext& context,
                v1::RunMetadata* metadata);

// Returns the run's products whose weights exist before it, in order. The run
// passed CheckRun().
std::vector<OngoingRun::Product> ProductsOf(const Plan& plan,
                                            const BoundRun& run);

// Makes a run that the caller advances node by node. All arguments outlive the
// result.
std::unique_ptr<OngoingRun> MakeOngoingRun(const Plan& plan,
                                           const BoundRun& run,
                                           const Lifetimes& lifetimes,
                                           const RunContext& context);

// Poisons everything that a run would have written, advances versions and frees
// final slots. `plan` is null for a refused graph.
void PoisonRun(const Plan* plan, const BoundRun& run, const RootError& error,
               StorageTable* storages);

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_RUN_EXECUTOR_H_
