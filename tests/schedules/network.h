// Simulates an unreliable network between sessions and their worker. A
// connection breaks at a given message, and each side notices the break at once
// or later. Messages and chunks may be late, but stay in order.
#ifndef TESTS_SCHEDULES_NETWORK_H_
#define TESTS_SCHEDULES_NETWORK_H_

#include <map>
#include <memory>
#include <vector>

#include "common/base/mutex.h"
#include "common/transport/stream.h"
#include "tests/schedules/schedule.h"

namespace djinn::schedules {

// Waits while other threads get `turns` turns. Sleeps briefly for each, because
// on a busy machine a process of low priority that yields may not run again for
// seconds.
void TakeTime(int turns);

class Connection;

// Thread-safe. Outlives its streams.
class Network {
 public:
  // If `told_memory_bytes` is not 0, clients learn that a worker has so much
  // memory for them.
  Network(std::vector<Fault> faults, uint64_t told_memory_bytes);
  ~Network();

  // Returns the client's end of the device's next stream; the worker's end is
  // the peer of `inner`. Applies the fault that the schedule has for the
  // stream, if any.
  std::unique_ptr<ClientStream> Connect(int device,
                                        std::unique_ptr<ClientStream> inner);

  // Breaks the device's connections, or every one (-1).
  void Break(int device);
  // Breaks the device's connections and refuses new ones.
  void Unplug(int device);

  // Makes the worker notice all breaks that it has not noticed yet.
  void NoticeAll();

 private:
  friend class FaultyStream;
  void KeepHalfOpen(std::shared_ptr<Connection> connection);

  const std::vector<Fault> faults_;
  const uint64_t told_memory_bytes_;
  Mutex mu_;
  // streams made so far, by device
  std::map<int, int> streams_ ABSL_GUARDED_BY(mu_);
  std::map<int, bool> unplugged_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<int, std::weak_ptr<Connection>>> live_
      ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<Connection>> half_open_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::schedules

#endif  // TESTS_SCHEDULES_NETWORK_H_
