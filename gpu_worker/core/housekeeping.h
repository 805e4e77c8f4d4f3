// Keeps a worker in order: closes and destroys streams, expires leases, fails
// transfers that make no progress, relieves memory and watches the device.
//
// The housekeeping thread owns the state here. Without a thread, the caller of
// KeepHouse() does, one at a time. It reads the given clock only.
#ifndef GPU_WORKER_CORE_HOUSEKEEPING_H_
#define GPU_WORKER_CORE_HOUSEKEEPING_H_

#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "gpu_worker/core/device_watch.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/leases/lease_keeper.h"
#include "gpu_worker/pull/offer_table.h"
#include "gpu_worker/store/memory_relief.h"
#include "gpu_worker/streams/stream_table.h"

namespace djinn::worker {

class Housekeeping {
 public:
  struct Options {
    // How often the thread checks deadlines.
    absl::Duration interval;
    // Called once, when the device can no longer serve any session. Optional.
    std::function<void(const absl::Status&)> device_broken;
    // Called without locks when the coordinator should hear of a change.
    std::function<void()> changed;
  };

  // All pointers must outlive this.
  Housekeeping(Options options, Device* device, Clock* clock,
               LeaseKeeper* leases, StreamTable* streams, OfferTable* offers,
               MemoryRelief* relief, DeviceWatch* watch);

  // Starts the thread.
  void Start();
  // Returns when all streams of the table, which was shut down, are destroyed
  // and the thread has ended. Without a thread, does the rest of the work.
  void Finish();
  // Does one round. Only for use without the thread.
  void KeepHouse();

 private:
  void Run();
  void ExpireLeases();
  void CheckDevice();
  OfferTable::Activity ActivityOf(const std::string& session_id) const;

  const Options options_;
  Device& device_;
  Clock& clock_;
  LeaseKeeper& leases_;
  StreamTable& streams_;
  OfferTable& offers_;
  MemoryRelief& relief_;
  DeviceWatch& watch_;
  bool reported_broken_ = false;
  // When unused memory is next returned to the device.
  absl::Duration next_tidying_;
  std::thread thread_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_CORE_HOUSEKEEPING_H_
