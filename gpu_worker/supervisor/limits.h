// Bounds what an executor sends and how long it takes, and says when it must
// end. Included by supervisor.h's sources alone.
//
// The functions read and change a record alone. The supervisor's lock guards
// that.
#ifndef GPU_WORKER_SUPERVISOR_LIMITS_H_
#define GPU_WORKER_SUPERVISOR_LIMITS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gpu_worker/supervisor/executor_record.h"
#include "gpu_worker/supervisor/supervisor.h"

namespace djinn::worker {

// Lets `passed` count for a node under way and for silence, and adds to what
// the executor may send.
void Age(absl::Duration passed, ExecutorRecord* executor);

// Counts a message. Returns an error when there were too many recently.
absl::Status CountMessage(ExecutorRecord* executor);
// Returns whether more of its bytes may be read now. The others wait in the
// socket.
bool MayRead(const ExecutorRecord& executor);
// Counts a span. Returns false when there were too many recently.
bool TakeSpan(ExecutorRecord* executor);

// Returns an error for an executor that has so many threads, when these are too
// many.
absl::Status CheckThreads(const ExecutorRecord& executor,
                          const SupervisorOptions& options, uint64_t threads);
// Notes that the executor was told to drop leases.
void NoteDrops(const v1::DesiredState& orders, ExecutorRecord* executor);
// Notes that the executor must end when it has a lease that it had to end
// (LEASE_KEPT).
void CheckLeases(ExecutorRecord* executor);

// Returns why the executor must end at the monotonic time `now`, or OK.
absl::Status Overdue(const ExecutorRecord& executor,
                     const SupervisorOptions& options, absl::Duration now);

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_LIMITS_H_
