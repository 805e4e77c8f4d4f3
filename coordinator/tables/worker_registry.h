// Records the workers of the cluster as they last reported themselves.
//
// A worker joins with its first report and is ACTIVE while reports come in
// time, LOST after that, and forgotten long after. A worker that left in order
// is forgotten at once. Its stream may break and come back in between. A
// complete report replaces everything that was known of the worker's leases;
// any other report names only the leases that have changed.
//
// Not thread-safe: the cluster's lock guards it.
#ifndef COORDINATOR_TABLES_WORKER_REGISTRY_H_
#define COORDINATOR_TABLES_WORKER_REGISTRY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/tables/waker.h"
#include "coordinator/tables/worker.h"
#include "djinn/v1/worker_registry.pb.h"

namespace djinn::coordinator {

class WorkerRegistry {
 public:
  struct Joined {
    Worker* worker = nullptr;
    // True when the worker has another incarnation than the last time: it has
    // forgotten everything.
    bool restarted = false;
    // If restarted: the time since the earlier incarnation's last report.
    absl::Duration silence;
    // The stream that the new one replaces, if it was still open.
    std::shared_ptr<Waker> replaced;
  };

  // `timeout` is the silence after which a worker is lost.
  explicit WorkerRegistry(absl::Duration timeout) : timeout_(timeout) {}

  // Returns InvalidArgument (PROTOCOL_VIOLATION) for a report without identity
  // or address, or with texts that are too long to be kept. An acknowledgement
  // needs only an identity.
  static absl::Status Check(const v1::WorkerState& report);

  // Binds a new stream to the worker and applies its first report. Returns the
  // errors of Check(), also for a report that is not complete; AlreadyExists
  // (WORKER_ID_IN_USE) when another process with this id is connected and has
  // reported in time.
  absl::StatusOr<Joined> Join(const v1::WorkerState& report, uint64_t stream,
                              std::shared_ptr<Waker> waker, absl::Duration now);

  // Applies the report, except for its signed leases and revision. Requires
  // that Check() accepted it.
  void Apply(const v1::WorkerState& report, absl::Duration now, Worker* worker);
  // Applies where tenants reach the worker, as every message lists it.
  static void ApplyEndpoints(const v1::WorkerState& report, Worker* worker);

  // Notes that the stream ended; the worker stays.
  void Disconnect(Worker* worker);

  // Returns active workers whose reports are overdue.
  std::vector<Worker*> Overdue(absl::Duration now);
  // Marks the worker LOST and clears what it reported.
  void MarkLost(Worker* worker);
  // Removes workers that have been lost for long, and returns their ids.
  std::vector<std::string> Forget(absl::Duration now);
  // Removes the worker.
  void Remove(Worker* worker);

  // Returns the worker, or null. Pointers stay valid until Forget() or
  // Remove().
  Worker* Find(const std::string& id);
  // Returns all workers by id.
  const std::map<std::string, std::unique_ptr<Worker>>& all() const {
    return workers_;
  }
  struct ById {
    bool operator()(const Worker* a, const Worker* b) const {
      return a->id < b->id;
    }
  };
  using Workers = absl::btree_set<Worker*, ById>;
  // Returns the workers whose last report has the graph, in constant time.
  const Workers& WithGraph(const std::string& fingerprint) const;
  // Returns the workers that hold a lease of the session by their reports,
  // whatever tenant they report for it.
  const Workers& WithSession(const std::string& session_id) const;

 private:
  // Applies the runs of a report.
  void ApplyWork(const v1::WorkerState& report, absl::Duration now,
                 Worker* worker);
  void ForgetWork(Worker* worker);
  void Unlist(const std::string& fingerprint, Worker* worker);
  void ApplyHeld(const v1::WorkerState& report, Worker* worker);
  // Adds or replaces one lease.
  void SetHeld(const std::string& lease_id, Worker::Held held, Worker* worker);
  // Does nothing when the worker does not hold the lease.
  void RemoveHeld(const std::string& lease_id, Worker* worker);

  static const Workers& Indexed(
      const absl::flat_hash_map<std::string, Workers>& index,
      const std::string& key);

  const absl::Duration timeout_;
  std::map<std::string, std::unique_ptr<Worker>> workers_;
  // By fingerprint; no set is empty.
  absl::flat_hash_map<std::string, Workers> with_graph_;
  // By session id; no set is empty.
  absl::flat_hash_map<std::string, Workers> with_session_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_WORKER_REGISTRY_H_
