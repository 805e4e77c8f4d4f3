// Tenants whose queues an operator stopped: none of their requests gets a
// lease. Includes tenants that are not configured any more, since they may come
// again.
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
    // Its leases end, too.
    bool drain = false;
    absl::Time since;
  };

  // Stops the queue. A queue that is stopped keeps its time; whether it drains
  // changes.
  void Add(const std::string& tenant, bool drain, absl::Time now);
  // False when it was not there.
  bool Remove(absl::string_view tenant);
  // Null when its queue is not stopped.
  const Stop* Find(absl::string_view tenant) const;
  // By tenant.
  const std::map<std::string, Stop, std::less<>>& all() const { return stops_; }

  // Describes the stop to operators, and encodes it to be saved.
  static v1::QueueStop Describe(const Stop& stop);
  static v1::StoredQueue Save(const Stop& stop);
  void Restore(const std::string& tenant, const v1::StoredQueue& stored);

 private:
  std::map<std::string, Stop, std::less<>> stops_;
};

// Returns what requests of such a tenant wait for: Unavailable (QUEUE_STOPPED).
absl::Status QueueStopped(const std::string& tenant);
// What an operator can do about it.
std::string ResumeCommand(absl::string_view tenant);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_QUEUE_STOPS_H_
