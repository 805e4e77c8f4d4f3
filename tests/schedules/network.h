// The network between sessions and their worker, which fails: a connection
// breaks at a given message, and each side notices at once or later. Messages
// and chunks may be late, in their order.
#ifndef TESTS_SCHEDULES_NETWORK_H_
#define TESTS_SCHEDULES_NETWORK_H_

#include <map>
#include <memory>
#include <vector>

#include "common/base/mutex.h"
#include "common/transport/stream.h"
#include "tests/schedules/schedule.h"

namespace djinn::schedules {

class Connection;

// Thread-safe. Outlives its streams.
class Network {
 public:
  explicit Network(std::vector<Fault> faults);
  ~Network();

  // The client's end of the device's next stream; the worker's end is `inner`'s
  // peer. With the stream's fault, if it has one.
  std::unique_ptr<ClientStream> Connect(int device,
                                        std::unique_ptr<ClientStream> inner);

  // Breaks the device's connections, or every one (-1).
  void Break(int device);
  // Likewise, for ever.
  void Unplug(int device);

  // What broke and the worker did not notice: it does now.
  void NoticeAll();

 private:
  friend class FaultyStream;
  void KeepHalfOpen(std::shared_ptr<Connection> connection);

  const std::vector<Fault> faults_;
  Mutex mu_;
  std::map<int, int> streams_ ABSL_GUARDED_BY(mu_);  // made so far, by device
  std::map<int, bool> unplugged_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<int, std::weak_ptr<Connection>>> live_
      ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<Connection>> half_open_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::schedules

#endif  // TESTS_SCHEDULES_NETWORK_H_
