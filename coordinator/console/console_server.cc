#include "coordinator/console/console_server.h"

#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/hash/hash.h"
#include "common/net/monitoring/gated_http.h"
#include "common/net/monitoring/request_origin.h"
#include "common/net/server_address.h"
#include "common/net/socket.h"
#include "coordinator/console/assets.h"
#include "coordinator/console/json_rows.h"
#include "coordinator/console/pictures.h"
#include "httplib.h"

namespace djinn::console {
namespace {

constexpr char kJson[] = "application/json";

// Lets the page load what this server serves and nothing else, and lets nobody
// frame it.
constexpr std::pair<const char*, const char*> kHeaders[] = {
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
     "connect-src 'self'; base-uri 'none'; form-action 'none'; "
     "frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"X-Frame-Options", "DENY"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cache-Control", "no-store"},
};

void Refuse(int status, absl::string_view reason, absl::string_view text,
            httplib::Response* reply) {
  reply->status = status;
  reply->set_content(absl::StrCat("{\"reason\":", Quoted(reason),
                                  ",\"text\":", Quoted(text), "}"),
                     kJson);
}

int HttpStatus(const absl::Status& status) {
  if (absl::IsNotFound(status)) return 404;
  if (absl::IsInvalidArgument(status)) return 400;
  return 503;
}

class HttpConsoleServer : public ConsoleServer {
 public:
  HttpConsoleServer(ServerOptions options, Observer* observer,
                    AdminReader* reader)
      : options_(std::move(options)), observer_(observer), reader_(reader) {}

  absl::Status Listen() {
    DJINN_ASSIGN_OR_RETURN(Listener listener, djinn::Listen(options_.address));
    address_ = listener.address;
    GatedHttp::Options http;
    http.request_timeout = options_.request_timeout;
    http.answer_timeout = options_.answer_timeout;
    http.max_connections = 64;
    http.compress = false;
    // A graph is asked of the coordinator, which may take its time.
    http.lanes = 2;
    http.lane = [](absl::string_view request) -> size_t {
      return absl::StartsWith(request, "GET /api/graph?") ? 1 : 0;
    };
    http_ = std::make_unique<GatedHttp>(
        std::move(listener.sockets), std::move(http),
        [this](httplib::Server* server) {
          // Takes every request, so no pattern is matched against a path.
          server->set_pre_routing_handler(
              [this](const httplib::Request& request,
                     httplib::Response& reply) {
                for (const auto& [name, value] : kHeaders) {
                  reply.set_header(name, value);
                }
                reply.status = 200;
                Answer(request, &reply);
                return httplib::Server::HandlerResponse::Handled;
              });
        });
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

 private:
  void Answer(const httplib::Request& request, httplib::Response* reply) const {
    if (!NamesLoopback(request.get_header_value("Host"))) {
      return Refuse(403, "WRONG_HOST",
                    "open the console by the address that it printed", reply);
    }
    // A link to the page from elsewhere is harmless, and answers to anything
    // else need the code.
    if (IsForeign(request, /*linked=*/request.path == "/")) {
      return Refuse(403, "FOREIGN_ORIGIN", "another site asked", reply);
    }
    if (request.method != "GET") {
      reply->set_header("Allow", "GET");
      return Refuse(405, "READ_ONLY", "the console changes nothing", reply);
    }
    for (const Asset& asset : Assets()) {
      if (request.path != asset.path) continue;
      reply->set_content(asset.content.data(), asset.content.size(),
                         std::string(asset.content_type).c_str());
      return;
    }
    if (!absl::StartsWith(request.path, "/api/")) {
      return Refuse(404, "NOT_FOUND", "there is no such page", reply);
    }
    const std::string header = request.get_header_value("Authorization");
    absl::string_view code = header;
    if (!absl::ConsumePrefix(&code, "Bearer ") ||
        !TokensEqual(code, options_.access_code)) {
      return Refuse(401, "CODE_UNKNOWN",
                    "enter the access code that djinnctl printed", reply);
    }
    AnswerData(request, reply);
  }

  void AnswerData(const httplib::Request& request,
                  httplib::Response* reply) const {
    const std::string& path = request.path;
    const Observer::Now now = observer_->now();
    if (path == "/api/overview") {
      return reply->set_content(OverviewJson(now, options_.interval), kJson);
    }
    if (path == "/api/runs") return AnswerRuns(request, reply);
    if (path == "/api/memory") return AnswerMemory(request, reply);
    if (path == "/api/lineage") {
      std::string json;
      observer_->WithLeases(
          [&](const LeaseHistory& leases) { json = LineageJson(leases); });
      return reply->set_content(json, kJson);
    }
    if (now.snapshot == nullptr) {
      return Refuse(503, "NOTHING_SEEN", "the coordinator did not answer yet",
                    reply);
    }
    if (path == "/api/workers") {
      reply->set_content(WorkersJson(*now.snapshot), kJson);
    } else if (path == "/api/shares") {
      reply->set_content(SharesJson(*now.snapshot), kJson);
    } else if (path == "/api/graphs") {
      reply->set_content(GraphsJson(*now.snapshot), kJson);
    } else if (path == "/api/graph") {
      AnswerGraph(request, *now.snapshot, reply);
    } else {
      Refuse(404, "NOT_FOUND", "there is no such data", reply);
    }
  }

  void AnswerRuns(const httplib::Request& request,
                  httplib::Response* reply) const {
    uint64_t after = 0;
    uint64_t before = std::numeric_limits<uint64_t>::max();
    for (const auto& [name, value] :
         {std::pair("after", &after), std::pair("before", &before)}) {
      if (request.has_param(name) &&
          !absl::SimpleAtoi(request.get_param_value(name), value)) {
        return Refuse(400, "CHANGE_MALFORMED",
                      absl::StrCat("`", name, "` is the number of a change"),
                      reply);
      }
    }
    std::string json;
    observer_->WithRuns(
        [&](const RunHistory& runs) { json = RunsJson(runs, after, before); });
    reply->set_content(json, kJson);
  }

  void AnswerMemory(const httplib::Request& request,
                    httplib::Response* reply) const {
    absl::Time at = absl::InfiniteFuture();
    int64_t micros = 0;
    if (request.has_param("at")) {
      if (!absl::SimpleAtoi(request.get_param_value("at"), &micros)) {
        return Refuse(400, "TIME_MALFORMED",
                      "`at` is a time in microseconds since 1970", reply);
      }
      at = absl::FromUnixMicros(micros);
    }
    const auto moment = observer_->MemoryAt(at);
    if (moment == nullptr) {
      return Refuse(503, "NOTHING_SEEN", "the coordinator did not answer yet",
                    reply);
    }
    reply->set_content(MemoryJson(*moment, observer_->memory_times()), kJson);
  }

  void AnswerGraph(const httplib::Request& request, const Snapshot& snapshot,
                   httplib::Response* reply) const {
    const absl::StatusOr<v1::GraphInfo> graph =
        reader_->Graph(request.get_param_value("fingerprint"));
    if (!graph.ok()) {
      return Refuse(HttpStatus(graph.status()), ErrorReason(graph.status()),
                    graph.status().message(), reply);
    }
    RunHistory::Measured measured;
    observer_->WithRuns([&](const RunHistory& runs) {
      measured = runs.MeasuredOf(graph->fingerprint());
    });
    reply->set_content(GraphJson(*graph, measured, snapshot.workers), kJson);
  }

  const ServerOptions options_;
  Observer* const observer_;
  AdminReader* const reader_;
  std::string address_;
  std::unique_ptr<GatedHttp> http_;
};

}  // namespace

absl::Status CheckConsoleAddress(absl::string_view address) {
  const absl::Status checked = CheckAddress(address, /*other_hosts=*/false);
  if (checked.ok() && !absl::StartsWith(address, "unix:")) return checked;
  const bool other_host = ErrorReason(checked) == "INSECURE_ADDRESS";
  return MakeError(
      other_host ? absl::StatusCode::kFailedPrecondition
                 : absl::StatusCode::kInvalidArgument,
      other_host ? "INSECURE_ADDRESS" : "MALFORMED_ADDRESS",
      absl::StrCat("expected host:port of the loopback, such as "
                   "127.0.0.1:7090, got \"",
                   address,
                   "\": the console serves its own host alone. From another "
                   "one, forward the port: ssh -L 7090:127.0.0.1:7090 HOST"));
}

absl::StatusOr<std::unique_ptr<ConsoleServer>> ConsoleServer::Start(
    ServerOptions options, Observer* observer, AdminReader* reader) {
  DJINN_RETURN_IF_ERROR(CheckConsoleAddress(options.address));
  auto server =
      std::make_unique<HttpConsoleServer>(std::move(options), observer, reader);
  DJINN_RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace djinn::console
