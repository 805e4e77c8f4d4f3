// Holds what a session has to say to the coordinator, and what it sends again
// after its stream broke.
//
// Not thread-safe: the link's lock guards it.
#ifndef CLIENT_LIB_TRANSPORT_COORDINATOR_OUTBOX_H_
#define CLIENT_LIB_TRANSPORT_COORDINATOR_OUTBOX_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "client_lib/transport/graph_queue.h"
#include "client_lib/transport/session_urgency.h"
#include "djinn/v1/session.pb.h"

namespace djinn {

class CoordinatorOutbox {
 public:
  struct LeaseWait {
    v1::LeaseRequest request;
    bool sent = false;  // on the present stream
    std::optional<absl::StatusOr<v1::LeaseGranted>> result;
  };
  // Requests a lease until Forget(). The caller keeps `wait`.
  void Request(LeaseWait* wait) { leases_[DeviceOf(*wait)] = wait; }
  void Forget(const LeaseWait& wait) { leases_.erase(DeviceOf(wait)); }
  // Takes a grant or a refusal. A grant that nobody waits for is returned.
  void TakeLeaseAnswer(v1::SessionResponse response);

  // Notes a lease that the session has besides those it asked for.
  void NoteHeld(const std::string& lease_id) { held_leases_.insert(lease_id); }
  void NoteEnded(const std::string& lease_id) { held_leases_.erase(lease_id); }
  // Does nothing if the coordinator has ended the lease.
  void ReturnLease(const std::string& lease_id, bool unreachable);
  void AddOutcome(uint32_t virtual_device, v1::MigrationOutcome outcome);

  void AddReport(v1::SessionRequest report);
  // Queues a report again whose write did not begin; ignores other requests.
  void KeepReport(v1::SessionRequest report);

  GraphQueue& graphs() { return graphs_; }
  // Returns the number of reports that did not leave, or never will.
  uint64_t lost_reports() const { return dropped_reports_ + reports_.size(); }

  // Notes the version of the priority that opened the stream.
  void NoteUrgency(uint64_t version) { told_urgency_ = version; }
  // Marks what the coordinator must hear again on a new stream.
  void BeginStream();
  // Returns the next message for the present stream. A graph stays in the queue
  // until its write begins.
  std::optional<v1::SessionRequest> Next(const SessionUrgency& urgency);

 private:
  using DeviceAndMember = std::pair<uint32_t, uint32_t>;
  struct Migrated {
    v1::MigrationOutcome outcome;
    bool sent = false;  // on the present stream
  };
  struct Returned {
    v1::LeaseReturn lease;
    bool sent = false;  // on the present stream
  };

  static DeviceAndMember DeviceOf(const LeaseWait& wait) {
    return {wait.request.virtual_device(), wait.request.member()};
  }
  void GiveBack(const std::string& lease_id, bool unreachable);

  std::map<DeviceAndMember, LeaseWait*> leases_;
  // Ids of leases that were granted to the session and have not ended.
  absl::flat_hash_set<std::string> held_leases_;
  // Returned leases, the newest last.
  std::deque<Returned> returned_;
  // The outcome of the last migration, by virtual device.
  std::map<uint32_t, Migrated> migrated_;
  // The version of the session's priority that the coordinator received.
  uint64_t told_urgency_ = 0;
  // Reports for operators, the newest last.
  std::deque<v1::SessionRequest> reports_;
  // Counts reports that newer ones displaced.
  uint64_t dropped_reports_ = 0;
  // Graphs with their notes.
  GraphQueue graphs_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_TRANSPORT_COORDINATOR_OUTBOX_H_
