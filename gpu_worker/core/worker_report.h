// Reports a worker: its state for the coordinator, and its metrics.
//
// Any thread may call it. Its lock guards only the questions that it answers;
// the parts that it reads guard themselves, so the numbers of a report need not
// be of one moment.
#ifndef GPU_WORKER_CORE_WORKER_REPORT_H_
#define GPU_WORKER_CORE_WORKER_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/metrics/exposition.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/executor/executor.h"
#include "gpu_worker/leases/lease_keeper.h"
#include "gpu_worker/leases/traffic.h"
#include "gpu_worker/session/base/session_environment.h"
#include "gpu_worker/store/ledger.h"
#include "gpu_worker/streams/stream_table.h"

namespace djinn::worker {

class WorkerReport {
 public:
  // The parts that the session environment does not name.
  struct Parts {
    uint64_t incarnation = 0;
    // The traffic of all leases.
    const Traffic& traffic;
    const LeaseKeeper& leases;
    const Executor& executor;
    const StreamTable& streams;
  };

  // `environment` and all that `parts` names must outlive the report.
  WorkerReport(const SessionEnvironment& environment, const Parts& parts);

  // Returns the state to report to the coordinator, complete except for address
  // and applied_revision.
  v1::WorkerState Snapshot() const;
  // Sets the questions that Snapshot() answers from now on. Returns whether
  // there are any.
  bool SetQuestions(std::vector<v1::RunsQuestion> questions);
  // Adds the worker's metrics to a scrape.
  void Collect(Exposition* out) const;

 private:
  // --- State (worker_report.cc).
  void ReportCaches(v1::WorkerState* state) const;
  // Fills the entries that the lease keeper made for `lease_ids`.
  void ReportSessions(const std::vector<std::string>& lease_ids,
                      const StreamTable::SessionMap& sessions,
                      v1::WorkerState* state) const;
  // Answers operators' questions about sessions' runs.
  void AnswerRuns(v1::WorkerState* state) const;
  // Returns what the session's next message waits for, or nothing when it does
  // not wait.
  std::optional<v1::MessageWait> WaitOf(const StreamTable::Entry& entry,
                                        absl::Duration now) const;
  // Returns the bytes of the sessions' storages that are known to be caches.
  static uint64_t CacheBytes(const StreamTable::SessionMap& sessions);
  // Returns about how many bytes StreamTable::EndLost() could free now: what
  // all lost sessions hold that are not executing a message. Others may use
  // some of it, too, such as a transfer under way; contents that other sessions
  // use are left out. All together use `used_contents` bytes of contents.
  static uint64_t LostBytes(uint64_t used_contents,
                            const StreamTable::SessionMap& sessions);

  // --- Metrics (worker_metrics.cc).
  void CollectMemory(Exposition* out) const;
  void CollectSessions(Exposition* out) const;

  const SessionEnvironment& environment_;
  const Parts parts_;
  const Device& device_;
  const Ledger& ledger_;

  mutable Mutex mu_;
  // The questions that the coordinator listed last.
  std::vector<v1::RunsQuestion> questions_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_CORE_WORKER_REPORT_H_
