// Records the tenants whose queues an operator stopped: none of their requests
// gets a lease. Includes tenants that are not configured any more, since they
// may be configured again.
//
// Not thread-safe: the cluster's lock guards it.
#ifndef COORDINATOR_TABLES_QUEUE_STOPS_H_
#define COORDINATOR_TABLES_QUEUE_STOPS_H_

#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "djinn/v1/coordinator_state.pb.h"
#include "djinn/v1/queue.pb.h"

namespace djinn::coordinator {

class QueueStops {
 public:
  struct Stop {
    // True when the tenant's leases end, too.
    bool drain = false;
    absl::Time since;
  };

  // Stops the queue. If it is stopped already, its time stays and only `drain`
  // changes.
  void Add(const std::string& tenant, bool drain, absl::Time now);
  // Resumes the queue. Returns false when it was not stopped.
  bool Remove(absl::string_view tenant);
  // Returns the stop; null when the tenant's queue is not stopped.
  const Stop* Find(absl::string_view tenant) const;
  // Returns all stops by tenant.
  const std::map<std::string, Stop, std::less<>>& all() const { return stops_; }

  // Describe() describes the stop to operators; Save() encodes it for the
  // store, and Restore() adds what Save() encoded.
  static v1::QueueStop Describe(const Stop& stop);
  static v1::StoredQueue Save(const Stop& stop);
  void Restore(const std::string& tenant, const v1::StoredQueue& stored);

 private:
  std::map<std::string, Stop, std::less<>> stops_;
};

// Returns Unavailable (QUEUE_STOPPED), the reason why requests of such a tenant
// wait.
absl::Status QueueStopped(const std::string& tenant);
// Returns the command by which an operator resumes the tenant's queue.
std::string ResumeCommand(absl::string_view tenant);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_QUEUE_STOPS_H_
