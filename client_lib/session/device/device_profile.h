// What a device keeps while its process is profiled.
#ifndef CLIENT_LIB_SESSION_DEVICE_DEVICE_PROFILE_H_
#define CLIENT_LIB_SESSION_DEVICE_DEVICE_PROFILE_H_

#include <cstdint>

#include "client_lib/session/profile/clock_relation.h"
#include "common/base/stage_times.h"
#include "common/transport/arrival.h"

namespace djinn {

struct DeviceProfile {
  // The sender's time for making messages; thread-safe.
  StageTimes<1> encoding;
  const Arrival::Interest interest;

  // Guarded by the device's lock.
  ClockRelation clocks;

  // The sender's own. So many nodes and runs since the worker was last asked
  // for their times: it keeps only so many.
  static constexpr uint64_t kReportAfterNodes = 16384;
  static constexpr uint64_t kReportAfterRuns = 1024;
  uint64_t nodes = 0;
  uint64_t runs = 0;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_DEVICE_PROFILE_H_
