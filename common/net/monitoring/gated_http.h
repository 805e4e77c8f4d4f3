// Answers HTTP requests over connections that a ConnectionGate guards.
//
// cpp-httplib parses requests and forms answers; its own server is not used,
// because there each slow peer occupies a thread. Here the request and the
// reading of the answer each have a deadline for the whole, and neither
// occupies a thread. When there are too many connections, the oldest that has
// not finished its request is closed; see connection_gate.h. A connection
// serves one request. A request may have at most
// ConnectionGate::kMaxFirstBytes, and the body of a request is never read.
#ifndef COMMON_NET_MONITORING_GATED_HTTP_H_
#define COMMON_NET_MONITORING_GATED_HTTP_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/net/socket.h"

namespace httplib {
class Server;
}  // namespace httplib

namespace djinn {

class GatedHttp {
 public:
  struct Options {
    // Time for the whole of a request, and of an answer.
    absl::Duration request_timeout = absl::Seconds(2);
    absl::Duration answer_timeout = absl::Seconds(10);
    // Number of connections that have not sent their request, or that read
    // their answer.
    size_t max_connections = 128;
    // Whether answers are compressed for those that accept it. Takes more time
    // than the way of the bytes over the loopback.
    bool compress = true;
    // Number of threads that answer. Each answers one request after another.
    size_t lanes = 1;
    // Returns the lane of a request, less than `lanes`. The gate's thread calls
    // it. Null: all requests are answered in lane 0.
    std::function<size_t(absl::string_view request)> lane;
  };

  // Starts to answer. `configure` adds the handlers; the lanes' threads call
  // them until this object is destroyed.
  GatedHttp(std::vector<Socket> listeners, Options options,
            const std::function<void(httplib::Server*)>& configure);
  // Ends the threads and closes all connections.
  ~GatedHttp();
  GatedHttp(const GatedHttp&) = delete;
  GatedHttp& operator=(const GatedHttp&) = delete;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace djinn

#endif  // COMMON_NET_MONITORING_GATED_HTTP_H_
