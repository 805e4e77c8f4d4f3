// Looks at a cluster at regular intervals and remembers what it saw, within
// fixed bounds, so that a page is answered from memory: ten open pages cost the
// coordinator as much as none.
#ifndef COORDINATOR_CONSOLE_OBSERVER_H_
#define COORDINATOR_CONSOLE_OBSERVER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "coordinator/console/admin_reader.h"
#include "coordinator/console/lease_history.h"
#include "coordinator/console/memory_history.h"
#include "coordinator/console/run_history.h"

namespace djinn::console {

// The lists of one look. Immutable.
struct Snapshot {
  absl::Time at;
  v1::ListWorkersResponse workers;
  v1::ListSessionsResponse sessions;
  v1::ListTenantsResponse tenants;
  v1::ListQueuesResponse queues;
  v1::ListLeasesResponse leases;
  v1::ListGraphsResponse graphs;
  // Explains why virtual devices wait, for at most kMaxExplained tenants.
  std::vector<v1::TenantExplanation> waiting;
};

// Thread-safe.
class Observer {
 public:
  struct Options {
    absl::Duration interval = absl::Seconds(2);
    // Each round asks for the runs of so many sessions, in turn: workers answer
    // that question, and have other work.
    size_t sessions_per_round = 32;
    size_t runs = 100'000;
    size_t ended_leases = 5'000;
  };
  // The most tenants whose waiting devices a round explains.
  static constexpr size_t kMaxExplained = 32;

  // Both outlive the observer.
  Observer(AdminReader* reader, Clock* clock, Options options);
  ~Observer();

  // Looks once. On an error the last snapshot stays, and `status` has the
  // error. Not to be called between Start() and Stop().
  absl::Status Look();
  // Looks at intervals, in a thread of its own.
  void Start();
  void Stop();

  struct Now {
    // The last complete look; null before the first one.
    std::shared_ptr<const Snapshot> snapshot;
    // Result of the last look, and since when it is an error.
    absl::Status status;
    absl::Time failing_since;
    // Number of looks.
    uint64_t round = 0;
  };
  Now now() const;

  // Calls the function with a history, under its lock: it only reads, and
  // neither waits nor calls the observer.
  void WithRuns(absl::FunctionRef<void(const RunHistory&)> read) const;
  void WithLeases(absl::FunctionRef<void(const LeaseHistory&)> read) const;
  // As MemoryHistory.
  std::shared_ptr<const MemoryMoment> MemoryAt(absl::Time at) const;
  std::vector<absl::Time> memory_times() const;

 private:
  absl::StatusOr<std::shared_ptr<const Snapshot>> Read();
  void ReadSessions(const Snapshot& snapshot);
  void Run();

  AdminReader* const reader_;
  Clock* const clock_;
  const Options options_;
  // The session with which the next round begins. The looking thread's.
  size_t next_session_ = 0;

  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  Now now_ ABSL_GUARDED_BY(mu_);
  // One lock for each history, so that a picture waits for its own alone.
  mutable Mutex runs_mu_;
  RunHistory runs_ ABSL_GUARDED_BY(runs_mu_);
  mutable Mutex leases_mu_;
  LeaseHistory leases_ ABSL_GUARDED_BY(leases_mu_);
  mutable Mutex memory_mu_;
  MemoryHistory memory_ ABSL_GUARDED_BY(memory_mu_);
  std::thread thread_;
};

}  // namespace djinn::console

#endif  // COORDINATOR_CONSOLE_OBSERVER_H_
