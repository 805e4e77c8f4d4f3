// Remembers which workers clients lately could not reach, by the clients' own
// reports. Placement prefers other workers: a worker is avoided
// - for the session that reported it;
// - for all sessions of a tenant, once a session of the tenant reported it and
//   none of the tenant's clients has reached it since;
// - for everyone, once that is so for two tenants. The word of one tenant alone
//   counts for no other: its clients may be at fault, or wish to have the
//   worker for themselves.
// A report counts for kReportLife, and only for one process of the worker.
//
// Not thread-safe: the cluster's lock guards it.
#ifndef COORDINATOR_TABLES_UNREACHED_WORKERS_H_
#define COORDINATOR_TABLES_UNREACHED_WORKERS_H_

#include <cstddef>
#include <map>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"

namespace djinn::coordinator {

class UnreachedWorkers {
 public:
  static constexpr absl::Duration kReportLife = absl::Minutes(5);
  // Most reports of a worker that are kept; the oldest is dropped first.
  static constexpr size_t kMaxReports = 1024;

  // Describes a worker to operators.
  struct Summary {
    size_t sessions = 0;
    // Tenants whose sessions avoid the worker.
    size_t tenants = 0;
    // Time of the last report; meaningless without sessions.
    absl::Duration last;

    bool by_everyone() const { return tenants >= 2; }
  };

  // Notes that a session could not reach the worker. Times are monotonic.
  void Add(const std::string& worker_id, const std::string& tenant,
           const std::string& session_id, absl::Duration now);
  // Notes that a client of the tenant has reached the worker.
  void Reached(const std::string& worker_id, const std::string& tenant);
  // Forgets the worker, which has restarted.
  void Forget(const std::string& worker_id);
  // Forgets reports that count no longer.
  void Expire(absl::Duration now);

  // Returns the workers that the session avoids.
  absl::flat_hash_set<std::string> AvoidedBy(const std::string& tenant,
                                             const std::string& session_id,
                                             absl::Duration now) const;
  Summary Summarize(const std::string& worker_id, absl::Duration now) const;

 private:
  struct Report {
    std::string tenant;
    absl::Duration time;
    // Another client of the tenant has reached the worker since.
    bool refuted = false;

    bool counts(absl::Duration now) const { return now < time + kReportLife; }
  };
  // By session id.
  using Reports = std::map<std::string, Report>;

  static Summary SummaryOf(const Reports& reports, absl::Duration now);

  // By worker id; no map of reports is empty.
  std::map<std::string, Reports> workers_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_UNREACHED_WORKERS_H_
