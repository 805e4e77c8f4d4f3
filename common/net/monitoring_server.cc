#include "common/net/monitoring_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/net/connection_gate.h"
#include "common/net/server_address.h"
#include "common/net/socket.h"
#include "httplib.h"

namespace djinn {
namespace {

// Number of requests that wait for an answer, of each kind.
constexpr size_t kMaxWaiting = 64;

ConnectionGate::Verdict JudgeRequest(absl::string_view bytes) {
  return absl::StrContains(bytes, "\r\n\r\n")
             ? ConnectionGate::Verdict::kComplete
             : ConnectionGate::Verdict::kIncomplete;
}

// Gives the library a request that has arrived, and keeps the answer.
class Exchange : public httplib::Stream {
 public:
  explicit Exchange(absl::string_view request) : request_(request) {}

  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  ssize_t read(char* bytes, size_t size) override {
    const size_t length = std::min(size, request_.size());
    memcpy(bytes, request_.data(), length);
    request_.remove_prefix(length);
    return static_cast<ssize_t>(length);
  }
  ssize_t write(const char* bytes, size_t size) override {
    answer_.append(bytes, size);
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return INVALID_SOCKET; }

  std::string TakeAnswer() { return std::move(answer_); }

 private:
  absl::string_view request_;
  std::string answer_;
};

// Parses requests and forms answers. Thread-safe.
class Http : public httplib::Server {
 public:
  std::string Answer(absl::string_view request) {
    Exchange exchange(request);
    bool closed = false;
    process_request(exchange, /*close_connection=*/true, closed,
                    [](httplib::Request&) {});
    return exchange.TakeAnswer();
  }
};

// Answers requests in a thread of its own, one after another.
class Answerer {
 public:
  ~Answerer() { Stop(); }

  // Starts the thread. Both outlive it.
  void Start(Http* http, ConnectionGate* gate) {
    thread_ = std::thread([this, http, gate] { Run(http, gate); });
  }
  void Stop() {
    {
      MutexLock lock(&mu_);
      stopping_ = true;
      changed_.Signal();
    }
    if (thread_.joinable()) thread_.join();
  }

  // Drops the connection when too many wait.
  void Enqueue(Socket connection, std::string request) {
    MutexLock lock(&mu_);
    if (waiting_.size() >= kMaxWaiting) return;
    waiting_.push_back({std::move(connection), std::move(request)});
    changed_.Signal();
  }

 private:
  struct Waiting {
    Socket connection;
    std::string request;
  };

  void Run(Http* http, ConnectionGate* gate) {
    for (;;) {
      Waiting next;
      {
        MutexLock lock(&mu_);
        while (waiting_.empty() && !stopping_) changed_.Wait(&mu_);
        if (stopping_) return;
        next = std::move(waiting_.front());
        waiting_.pop_front();
      }
      std::string answer = http->Answer(next.request);
      if (answer.empty()) continue;
      gate->Send(std::move(next.connection), std::move(answer));
    }
  }

  Mutex mu_;
  CondVar changed_;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

class HttpMonitoringServer : public MonitoringServer {
 public:
  explicit HttpMonitoringServer(MonitoringOptions options)
      : options_(std::move(options)) {
    http_.set_payload_max_length(0);
    http_.Get("/livez", [](const httplib::Request&, httplib::Response& reply) {
      reply.set_content("ok\n", "text/plain");
    });
    http_.Get("/readyz", [this](const httplib::Request& request,
                                httplib::Response& reply) {
      AnswerReadiness(request.has_param("verbose"), &reply);
    });
    http_.Get("/metrics",
              [this](const httplib::Request&, httplib::Response& reply) {
                Exposition exposition;
                for (const MetricsSource& source : options_.sources) {
                  source(&exposition);
                }
                reply.set_content(exposition.Text(),
                                  "text/plain; version=0.0.4; charset=utf-8");
              });
  }

  ~HttpMonitoringServer() override {
    // These threads use the gate, whose thread uses these objects.
    probes_.Stop();
    scrapes_.Stop();
    gate_ = nullptr;
  }

  absl::Status Start() {
    DJINN_ASSIGN_OR_RETURN(Listener listener, Listen(options_.address));
    address_ = listener.address;
    ConnectionGate::Options gate;
    gate.max_connections = options_.max_connections;
    gate.first_bytes_timeout = options_.request_timeout;
    gate.send_timeout = options_.answer_timeout;
    gate.judge = JudgeRequest;
    gate.take = [this](Socket connection) { Take(std::move(connection)); };
    gate_ = std::make_unique<ConnectionGate>(std::move(listener.sockets),
                                             std::move(gate));
    probes_.Start(&http_, gate_.get());
    scrapes_.Start(&http_, gate_.get());
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

 private:
  // Runs in the gate's thread.
  void Take(Socket connection) {
    std::string request(ConnectionGate::kMaxFirstBytes, '\0');
    const ssize_t size =
        recv(connection.fd(), request.data(), request.size(), MSG_DONTWAIT);
    if (size <= 0) return;
    request.resize(static_cast<size_t>(size));
    // Scrapes take time that probes must not wait for.
    Answerer& answerer =
        absl::StartsWith(request, "GET /metrics") ? scrapes_ : probes_;
    answerer.Enqueue(std::move(connection), std::move(request));
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
  Http http_;
  std::string address_;
  Answerer probes_;
  Answerer scrapes_;
  std::unique_ptr<ConnectionGate> gate_;
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
