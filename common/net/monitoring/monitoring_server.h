// Answers supervisors and Prometheus over plain HTTP:
//
//   GET /livez             200 while the process answers
//   GET /readyz            200 when every check passes, 503 otherwise;
//                          ?verbose lists the checks
//   GET /metrics           Prometheus' text format
//
// It has no credential and the metrics name tenants and workers, so it belongs
// on an address that only operators reach. It never changes anything. It
// refuses what a page of another site makes a browser ask, and on the loopback
// also requests for a name other than localhost, which an attacker may have
// pointed there.
//
// Scrapes and the other requests are answered in two threads, so that no probe
// waits for a scrape. A connection serves one request. The request and the
// reading of the answer each have a deadline for the whole, and neither
// occupies a thread, so that slow peers delay no probe. When there are too many
// connections, the oldest that has not finished its request is closed; see
// connection_gate.h.
#ifndef COMMON_NET_MONITORING_MONITORING_SERVER_H_
#define COMMON_NET_MONITORING_MONITORING_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/metrics/exposition.h"

namespace djinn {

// One condition of readiness.
struct ReadinessCheck {
  std::string name;
  // Empty when the condition holds.
  std::string failure;
  // Further facts for operators; may be empty.
  std::string detail = {};
};

struct MonitoringOptions {
  // Address "host:port". Port 0 stands for any free one.
  std::string address;
  // Allows addresses other than the loopback's.
  bool insecure = false;
  std::vector<MetricsSource> sources;
  std::function<std::vector<ReadinessCheck>()> readiness;
  // Has MonitoringPort open a loopback port that the system chooses while the
  // address is busy.
  bool stand_in = false;
  // Time for the whole of a request, and of an answer.
  absl::Duration request_timeout = absl::Seconds(2);
  absl::Duration answer_timeout = absl::Seconds(10);
  // Number of connections that have not sent their request, or that read their
  // answer.
  size_t max_connections = 128;
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

#endif  // COMMON_NET_MONITORING_MONITORING_SERVER_H_
