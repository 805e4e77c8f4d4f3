// Decides by checks whether a process is ready to serve, and says so wherever
// it is asked: /readyz (monitoring_server.h), health v1 (server.h), metrics.
//
// A thread evaluates the checks every interval. Thread-safe. Knows no gRPC.
#ifndef COMMON_NET_MONITORING_READINESS_H_
#define COMMON_NET_MONITORING_READINESS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/metrics/exposition.h"
#include "common/net/monitoring/monitoring_server.h"

namespace djinn {

class Readiness {
 public:
  using Checks = std::function<std::vector<ReadinessCheck>()>;
  // Called by one thread at a time, without locks.
  using Listener = std::function<void(bool ready)>;

  // The default interval: how long health may lag behind.
  static constexpr absl::Duration kInterval = absl::Milliseconds(200);

  // Evaluates the checks and calls `listener` before it returns, then whenever
  // the result has changed. `checks` must be quick; any thread calls it.
  Readiness(Checks checks, Listener listener,
            absl::Duration interval = kInterval);
  // Calls neither function from then on.
  ~Readiness();
  Readiness(const Readiness&) = delete;
  Readiness& operator=(const Readiness&) = delete;

  // Returns the checks as they are now, and one called "serving", which fails
  // with the reason of Leave().
  std::vector<ReadinessCheck> Evaluate() const;

  // Makes the process not ready for good. The listener knows when it returns.
  void Leave(std::string why);

  // Adds the state of each check to a scrape.
  void Collect(Exposition* out) const;

 private:
  void Run();

  const Checks checks_;
  const Listener listener_;
  const absl::Duration interval_;

  mutable Mutex mu_;
  CondVar changed_;
  std::string leaving_ ABSL_GUARDED_BY(mu_);
  // Numbers of the evaluations that were asked for and that are done.
  uint64_t wanted_ ABSL_GUARDED_BY(mu_) = 1;
  uint64_t done_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace djinn

#endif  // COMMON_NET_MONITORING_READINESS_H_
