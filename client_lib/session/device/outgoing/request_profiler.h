// Measures the latency components of reads on the device's side while the
// process is profiled.
//
// Not thread-safe: the lock of the answers (answers.h) guards it.
#ifndef CLIENT_LIB_SESSION_DEVICE_OUTGOING_REQUEST_PROFILER_H_
#define CLIENT_LIB_SESSION_DEVICE_OUTGOING_REQUEST_PROFILER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client_lib/session/profile/request_stages.h"
#include "client_lib/session/transfer/work.h"
#include "common/base/stage_times.h"
#include "common/transport/arrival.h"
#include "djinn/v1/profile.pb.h"

namespace djinn {

// The measurements that a device keeps while its process is profiled.
struct DeviceProfile {
  // The sender's time for encoding messages; thread-safe.
  StageTimes<1> encoding;
  const Arrival::Interest interest;

  // Guarded by the lock of the answers (answers.h).
  ClockRelation clocks;

  // Used by the sender only. It requests the worker's times after this many
  // nodes or runs, because the worker keeps no more.
  static constexpr uint64_t kReportAfterNodes = 16384;
  static constexpr uint64_t kReportAfterRuns = 1024;
  uint64_t nodes = 0;
  uint64_t runs = 0;
};

class RequestProfiler {
 public:
  // Returns the current profile, which it begins if the program asks for one,
  // or null.
  const std::shared_ptr<DeviceProfile>& Profiled();
  bool active() const { return profile_ != nullptr; }
  void End() { profile_.reset(); }

  // These methods mark a read: the program asked for the value, the transport
  // has the message, and the worker's answer arrived. They ignore reads without
  // marks.
  void MarkAsked(ReadWait* wait, absl::Duration began, absl::Duration asked);
  void MarkHanded(ReadWait* wait, absl::Duration now);
  // An error is a breach of the protocol.
  absl::Status MarkAnswered(ReadWait* wait, const v1::ReplyTiming& timing,
                            absl::Duration arrived);
  // Returns the read's marks, and sets `clocks` to the relation needed to
  // interpret them.
  std::unique_ptr<ReadMarks> TakeMarks(ReadWait* wait, ClockRelation* clocks);
  // Adds the worker's measurements to the profile of the process.
  absl::Status TakeReport(int device, const std::string& worker_id,
                          const v1::ProfileReport& report, absl::Duration now);

 private:
  std::shared_ptr<DeviceProfile> profile_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_OUTGOING_REQUEST_PROFILER_H_
