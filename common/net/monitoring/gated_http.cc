#include "common/net/monitoring/gated_http.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "common/base/mutex.h"
#include "common/net/connection_gate.h"
#include "httplib.h"

namespace djinn {
namespace {

// Number of requests that wait for an answer, in each lane.
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
  explicit Http(bool compress) : compress_(compress) {}

  std::string Answer(absl::string_view request) {
    Exchange exchange(request);
    bool closed = false;
    process_request(exchange, /*close_connection=*/true, closed,
                    [this](httplib::Request& request) {
                      if (!compress_) request.headers.erase("Accept-Encoding");
                    });
    return exchange.TakeAnswer();
  }

 private:
  const bool compress_;
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

}  // namespace

class GatedHttp::Impl {
 public:
  Impl(std::vector<Socket> listeners, Options options,
       const std::function<void(httplib::Server*)>& configure)
      : lane_(std::move(options.lane)),
        http_(options.compress),
        answerers_(options.lanes) {
    http_.set_payload_max_length(0);
    configure(&http_);
    ConnectionGate::Options gate;
    gate.max_connections = options.max_connections;
    gate.first_bytes_timeout = options.request_timeout;
    gate.send_timeout = options.answer_timeout;
    gate.judge = JudgeRequest;
    gate.take = [this](Socket connection) { Take(std::move(connection)); };
    gate_ =
        std::make_unique<ConnectionGate>(std::move(listeners), std::move(gate));
    for (Answerer& each : answerers_) each.Start(&http_, gate_.get());
  }

  ~Impl() {
    // These threads use the gate, whose thread uses these objects.
    for (Answerer& each : answerers_) each.Stop();
    gate_ = nullptr;
  }

 private:
  // Runs in the gate's thread.
  void Take(Socket connection) {
    std::string request(ConnectionGate::kMaxFirstBytes, '\0');
    const ssize_t size =
        recv(connection.fd(), request.data(), request.size(), MSG_DONTWAIT);
    if (size <= 0) return;
    request.resize(static_cast<size_t>(size));
    const size_t lane = lane_ == nullptr ? 0 : lane_(request);
    answerers_[lane].Enqueue(std::move(connection), std::move(request));
  }

  const std::function<size_t(absl::string_view)> lane_;
  Http http_;
  std::vector<Answerer> answerers_;
  std::unique_ptr<ConnectionGate> gate_;
};

GatedHttp::GatedHttp(std::vector<Socket> listeners, Options options,
                     const std::function<void(httplib::Server*)>& configure)
    : impl_(std::make_unique<Impl>(std::move(listeners), std::move(options),
                                   configure)) {}

GatedHttp::~GatedHttp() = default;

}  // namespace djinn
