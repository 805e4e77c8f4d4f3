// Collects what operators are told of a recovery, from the loss of a worker
// until another one has executed the replay. A worker that is lost before that
// belongs to the same recovery.
//
// Not thread-safe: the connection's lock guards it. Times are monotonic.
#ifndef CLIENT_LIB_SESSION_DEVICE_REPLICA_RECOVERY_REPORTER_H_
#define CLIENT_LIB_SESSION_DEVICE_REPLICA_RECOVERY_REPORTER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "djinn/v1/recovery.pb.h"

namespace djinn {

// Returns the status in a report, with a text of bounded length.
v1::ErrorDetail ShortDetail(const absl::Status& status);

class RecoveryReporter {
 public:
  // Begins with the loss of the worker.
  void Begin(int device, int member, const std::string& worker,
             const absl::Status& cause, absl::Duration now);
  // Adds the time of a lease request, and of an attempt to connect.
  void Asked(absl::Duration took);
  void Connected(absl::Duration took);
  // Notes that what is kept was encoded, since `began`, and is on its way.
  void Sent(const std::string& worker, uint64_t replayed, uint64_t restored,
            absl::Duration began, absl::Duration now);
  // Completes the report: the worker has executed the replay, or the device
  // fails. Executed() does nothing unless Sent() was called. Neither does
  // anything if no recovery has begun.
  void Executed(absl::Duration now);
  void Failed(const absl::Status& failure, absl::Duration now);

  // Returns whether a recovery has begun and is not over.
  bool open() const { return open_; }
  // Returns whether there is a complete report. It stays complete when another
  // recovery begins.
  bool complete() const { return !complete_.empty(); }
  // Returns the complete reports, oldest first, and forgets them.
  std::vector<v1::RecoveryReport> Take();

 private:
  v1::RecoveryReport report_;
  bool open_ = false;
  bool sent_ = false;
  std::vector<v1::RecoveryReport> complete_;
  absl::Duration began_, sent_at_;
  absl::Duration lease_, connect_, send_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_REPLICA_RECOVERY_REPORTER_H_
