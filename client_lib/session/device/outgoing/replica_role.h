// Defines what a replica of a virtual device gets when it is created, and what
// its worker says of itself.
#ifndef CLIENT_LIB_SESSION_DEVICE_OUTGOING_REPLICA_ROLE_H_
#define CLIENT_LIB_SESSION_DEVICE_OUTGOING_REPLICA_ROLE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "client_lib/session/device/outgoing/work_encoder.h"
#include "client_lib/session/recording/virtual_device.h"
#include "djinn/v1/placement.pb.h"

namespace djinn {

// Virtual devices of one index that a session may have one after the other.
// Each has numbers of its own for storages (replica_state.cc).
inline constexpr uint64_t kMaxIncarnations = uint64_t{1} << 12;

struct ReplicaRole {
  // Indices of the virtual device and of the replica.
  int index = 0;
  int member = 0;
  // Number of virtual devices of this index that the session had before.
  uint64_t incarnation = 0;
  // The device of all storages. It must live as long as calls are made.
  VirtualDevice* owner = nullptr;
  // Memory to request on the worker.
  uint64_t needed_bytes = 0;
  // Bytes of the owner's live storages on the worker. The owner keeps the
  // count alive.
  const std::atomic<int64_t>* used_bytes = nullptr;
  // Called without locks when this replica fails by itself: once before other
  // threads can see the failure, and once afterwards, for replicas that were
  // added in between.
  std::function<void(const absl::Status& failure)> on_failure;
  // The sender calls it. May be null.
  WorkEncoder::OnRepeat on_repeat;
};

// The worker's description of itself; empty before the worker was reached.
struct WorkerDescription {
  std::string worker_id;
  std::string numerics;
  v1::DeviceSpeed speed;
  uint64_t generator_bytes = 0;
  bool executor_per_tenant = false;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_OUTGOING_REPLICA_ROLE_H_
