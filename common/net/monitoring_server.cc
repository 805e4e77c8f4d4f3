#include "common/net/monitoring_server.h"

#include <sys/socket.h>

#include <cstdlib>
#include <deque>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/net/server_address.h"
#include "httplib.h"

namespace djinn {
namespace {

constexpr size_t kThreads = 2;
constexpr size_t kMaxWaiting = 16;
constexpr time_t kRequestSeconds = 2;

// Replaces the library's own queue, which has no bound.
class BoundedTaskQueue : public httplib::TaskQueue {
 public:
  BoundedTaskQueue() {
    for (size_t i = 0; i < kThreads; ++i) {
      threads_.emplace_back([this] { Run(); });
    }
  }

  // Blocks the accepting thread until there is room.
  void enqueue(std::function<void()> task) override {
    MutexLock lock(&mu_);
    while (tasks_.size() >= kMaxWaiting && !stopping_) changed_.Wait(&mu_);
    tasks_.push_back(std::move(task));
    changed_.SignalAll();
  }

  void shutdown() override {
    {
      MutexLock lock(&mu_);
      stopping_ = true;
      changed_.SignalAll();
    }
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void Run() {
    for (;;) {
      std::function<void()> task;
      {
        MutexLock lock(&mu_);
        while (tasks_.empty() && !stopping_) changed_.Wait(&mu_);
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
        changed_.SignalAll();
      }
      task();
    }
  }

  Mutex mu_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

class HttpMonitoringServer : public MonitoringServer {
 public:
  explicit HttpMonitoringServer(MonitoringOptions options)
      : options_(std::move(options)) {
    // Unlike the library's default, these options refuse a port that is in use.
    http_.set_socket_options([](socket_t socket) {
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    http_.new_task_queue = [] { return new BoundedTaskQueue; };
    http_.set_keep_alive_max_count(1);
    http_.set_keep_alive_timeout(kRequestSeconds);
    http_.set_read_timeout(kRequestSeconds);
    http_.set_write_timeout(kRequestSeconds);
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
    http_.stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Listen() {
    // The address was checked: it has a colon, and a number after the last one.
    const size_t colon = options_.address.rfind(':');
    std::string host = options_.address.substr(0, colon);
    int port = 0;
    if (!absl::SimpleAtoi(options_.address.substr(colon + 1), &port)) port = -1;
    if (absl::StartsWith(host, "[")) host = host.substr(1, host.size() - 2);
    if (port == 0) {
      port = http_.bind_to_any_port(host);
    } else if (port > 0 && !http_.bind_to_port(host, port)) {
      port = -1;
    }
    if (port <= 0) {
      return MakeError(absl::StatusCode::kUnavailable, "CANNOT_LISTEN",
                       absl::StrCat("cannot listen on \"", options_.address,
                                    "\": in use or not permitted"),
                       {{"address", options_.address}});
    }
    address_ = absl::StrCat(options_.address.substr(0, colon), ":", port);
    thread_ = std::thread([this] { http_.listen_after_bind(); });
    // A stop before the server runs would have no effect.
    while (!http_.is_running()) absl::SleepFor(absl::Milliseconds(1));
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

 private:
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
  httplib::Server http_;
  std::string address_;
  std::thread thread_;
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
  DJINN_RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace djinn
