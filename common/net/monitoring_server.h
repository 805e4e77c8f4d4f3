// Answers supervisors and Prometheus over plain HTTP:
//
//   GET /livez             200 while the process answers
//   GET /readyz            200 when every check passes, 503 otherwise;
//                          ?verbose lists the checks
//   GET /metrics           Prometheus' text format
//
// It has no credential and the metrics name tenants and workers, so it belongs
// on an address that only operators reach. It never changes anything.
//
// Two threads answer; a few connections wait for them, further ones in the
// kernel. A connection serves one request and has a few seconds for it.
#ifndef COMMON_NET_MONITORING_SERVER_H_
#define COMMON_NET_MONITORING_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/metrics/exposition.h"

namespace djinn {

// One condition of readiness.
struct ReadinessCheck {
  std::string name;
  // Empty when the condition holds.
  std::string failure;
  // What else to know about it; may be empty.
  std::string detail = {};
};

struct MonitoringOptions {
  // Address "host:port". Port 0 stands for any free one.
  std::string address;
  // Allows addresses other than the loopback's.
  bool insecure = false;
  std::vector<MetricsSource> sources;
  std::function<std::vector<ReadinessCheck>()> readiness;
};

class MonitoringServer {
 public:
  // Starts a server. Its threads call the functions in `options` until it is
  // destroyed. Errors: those of CheckAddress(); InvalidArgument
  // (MALFORMED_ADDRESS) for a Unix socket; Unavailable (CANNOT_LISTEN).
  static absl::StatusOr<std::unique_ptr<MonitoringServer>> Start(
      MonitoringOptions options);
  virtual ~MonitoringServer() = default;

  // Returns the address with the port in use.
  virtual const std::string& address() const = 0;
};

}  // namespace djinn

#endif  // COMMON_NET_MONITORING_SERVER_H_
