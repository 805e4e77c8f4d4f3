// Defines what a device keeps while its process is profiled.
#ifndef CLIENT_LIB_SESSION_DEVICE_DEVICE_PROFILE_H_
#define CLIENT_LIB_SESSION_DEVICE_DEVICE_PROFILE_H_

#include <cstdint>

#include "client_lib/session/profile/clock_relation.h"
#include "common/base/stage_times.h"
#include "common/transport/arrival.h"

namespace djinn {

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

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_DEVICE_PROFILE_H_
