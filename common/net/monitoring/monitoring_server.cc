#include "common/net/monitoring/monitoring_server.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/net/monitoring/gated_http.h"
#include "common/net/monitoring/request_origin.h"
#include "common/net/server_address.h"
#include "common/net/socket.h"
#include "httplib.h"

namespace djinn {
namespace {

class HttpMonitoringServer : public MonitoringServer {
 public:
  explicit HttpMonitoringServer(MonitoringOptions options)
      : options_(std::move(options)),
        loopback_(CheckAddress(options_.address, /*other_hosts=*/false).ok()) {}

  absl::Status Start() {
    DJINN_ASSIGN_OR_RETURN(Listener listener, Listen(options_.address));
    address_ = listener.address;
    GatedHttp::Options http;
    http.request_timeout = options_.request_timeout;
    http.answer_timeout = options_.answer_timeout;
    http.max_connections = options_.max_connections;
    // Scrapes take time that probes must not wait for.
    http.lanes = 2;
    http.lane = [](absl::string_view request) -> size_t {
      return absl::StartsWith(request, "GET /metrics") ? 1 : 0;
    };
    http_ = std::make_unique<GatedHttp>(
        std::move(listener.sockets), std::move(http),
        [this](httplib::Server* server) { AddHandlers(server); });
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

 private:
  void AddHandlers(httplib::Server* server) {
    server->set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& reply) {
          const std::string why = Refusal(request);
          if (why.empty()) return httplib::Server::HandlerResponse::Unhandled;
          reply.status = 403;
          reply.set_content(why + "\n", "text/plain");
          return httplib::Server::HandlerResponse::Handled;
        });
    server->Get("/livez",
                [](const httplib::Request&, httplib::Response& reply) {
                  reply.set_content("ok\n", "text/plain");
                });
    server->Get("/readyz", [this](const httplib::Request& request,
                                  httplib::Response& reply) {
      AnswerReadiness(request.has_param("verbose"), &reply);
    });
    server->Get("/metrics",
                [this](const httplib::Request&, httplib::Response& reply) {
                  Exposition exposition;
                  for (const MetricsSource& source : options_.sources) {
                    source(&exposition);
                  }
                  reply.set_content(exposition.Text(),
                                    "text/plain; version=0.0.4; charset=utf-8");
                });
  }

  // Returns why a request is refused; empty when it is not.
  std::string Refusal(const httplib::Request& request) const {
    if (IsForeign(request, /*linked=*/true)) return "another site asked";
    // Off the loopback, scrapers may know this host by any name.
    const std::string host = request.get_header_value("Host");
    if (!loopback_ || host.empty() || NamesLoopback(host) ||
        NamesAddress(host)) {
      return "";
    }
    return "this port knows no name but localhost";
  }

  void AnswerReadiness(bool verbose, httplib::Response* reply) {
    std::string text;
    bool ready = true;
    for (const ReadinessCheck& check : options_.readiness()) {
      const bool passed = check.failure.empty();
      ready &= passed;
      if (!verbose && passed) continue;
      absl::StrAppend(&text, passed ? "[+]" : "[-]", check.name,
                      passed ? " ok" : " failed: ", check.failure,
                      check.detail.empty() ? "" : "; ", check.detail, "\n");
    }
    absl::StrAppend(&text, ready ? "ok\n" : "not ready\n");
    reply->status = ready ? 200 : 503;
    reply->set_content(text, "text/plain");
  }

  const MonitoringOptions options_;
  const bool loopback_;
  std::string address_;
  std::unique_ptr<GatedHttp> http_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MonitoringServer>> MonitoringServer::Start(
    MonitoringOptions options) {
  if (absl::StartsWith(options.address, "unix:")) {
    return MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_ADDRESS",
                     "expected host:port, got \"" + options.address + "\"");
  }
  DJINN_RETURN_IF_ERROR(CheckAddress(options.address, options.insecure));
  auto server = std::make_unique<HttpMonitoringServer>(std::move(options));
  DJINN_RETURN_IF_ERROR(server->Start());
  return server;
}

}  // namespace djinn
