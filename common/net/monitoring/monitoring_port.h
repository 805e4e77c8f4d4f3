// Opens the monitoring port without ever stopping service for it: while the
// port is busy, the process serves without, and tries again.
#ifndef COMMON_NET_MONITORING_MONITORING_PORT_H_
#define COMMON_NET_MONITORING_MONITORING_PORT_H_

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/net/monitoring/monitoring_server.h"

namespace djinn {

// Thread-safe.
class MonitoringPort {
 public:
  static constexpr absl::Duration kRetryInterval = absl::Seconds(1);

  // Starts the monitoring server, now or, if the system does not give it the
  // port (CANNOT_LISTEN), as soon as it does; a log line says so. A stand-in
  // then answers at once, without metrics, and for good. Returns the other
  // errors of MonitoringServer::Start(), which no time mends.
  static absl::StatusOr<std::unique_ptr<MonitoringPort>> Open(
      MonitoringOptions options,
      absl::Duration retry_interval = kRetryInterval);
  // Ends the server.
  ~MonitoringPort();
  MonitoringPort(const MonitoringPort&) = delete;
  MonitoringPort& operator=(const MonitoringPort&) = delete;

  // Returns the address with the port in use. While it is busy, returns the
  // stand-in's, or nothing.
  std::string address() const;

 private:
  MonitoringPort() = default;
  void StandIn(MonitoringOptions options);
  void KeepTrying(const MonitoringOptions& options, absl::Duration interval);

  // Null when there is none. Does not change after Open().
  std::unique_ptr<MonitoringServer> stand_in_;
  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<MonitoringServer> server_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace djinn

#endif  // COMMON_NET_MONITORING_MONITORING_PORT_H_
