#include "gpu_worker/supervisor/fetching.h"

#include <fcntl.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/log/log.h"
#include "common/net/bounded_call.h"
#include "common/net/channel_options.h"
#include "common/net/grpc_status.h"
#include "djinn/v1/supervision.grpc.pb.h"
#include "grpcpp/create_channel_posix.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/server_posix.h"

namespace djinn::worker {
namespace {

constexpr char kMethod[] = "/djinn.v1.Fetching/Fetch";
// A request names a session and has a ticket.
constexpr int kMaxRequestBytes = 64 << 10;
// Limit on a chunk, which the supervisor holds until the executor takes it.
// An honest worker's has 256 KiB.
constexpr size_t kMaxChunkBytes = size_t{512} << 10;

absl::Status GivenUp() { return absl::CancelledError("the executor gave up"); }

// One call of an executor. The thread that fetches waits in OnBytes() until
// gRPC has taken the previous chunk, so the other worker sends at the
// executor's pace.
class FetchReactor : public grpc::ServerWriteReactor<v1::PullResponse>,
                     public PullReceiver,
                     public std::enable_shared_from_this<FetchReactor> {
 public:
  // The reactor keeps itself alive until gRPC is done with it. `calls` counts
  // it until then, even if a PullSource keeps it longer.
  static FetchReactor* Make(PullSource* pulls,
                            std::shared_ptr<std::atomic<size_t>> calls) {
    std::shared_ptr<FetchReactor> reactor(
        new FetchReactor(pulls, std::move(calls)));
    reactor->self_ = reactor;
    return reactor.get();
  }
  void Start(const v1::FetchRequest& request) {
    pulls_->Start(request.worker_id(), request.pull(), shared_from_this());
  }
  void Refuse(absl::Status why) { End(std::move(why)); }

  // Implements PullReceiver.
  void OnWaiting() override {
    {
      MutexLock lock(&mu_);
      if (writing_ || end_.has_value()) return;
      writing_ = true;
      response_.mutable_waiting();
    }
    StartWrite(&response_);
  }
  absl::Status OnBytes(uint64_t offset, absl::string_view bytes) override {
    if (bytes.size() > kMaxChunkBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("a chunk of ", bytes.size(), " bytes"));
    }
    v1::PullResponse response;
    response.mutable_chunk()->set_offset(offset);
    response.mutable_chunk()->set_payload(bytes.data(), bytes.size());
    return Write(std::move(response)) ? absl::OkStatus() : GivenUp();
  }
  void OnComplete() override { End(absl::OkStatus()); }
  void OnShared(std::shared_ptr<Buffer> /*buffer*/) override {
    End(absl::InternalError("the supervisor offers nothing"));
  }
  void OnPoisoned(v1::ErrorDetail error) override {
    v1::PullResponse response;
    *response.mutable_poisoned() = std::move(error);
    (void)Write(std::move(response));
    End(absl::OkStatus());
  }
  void OnFailed(absl::Status why) override { End(std::move(why)); }

  // Implements the gRPC reactor.
  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(&mu_);
      writing_ = false;
      if (!ok && !end_.has_value()) end_ = GivenUp();
      changed_.SignalAll();
    }
    FinishIfOver();
  }
  void OnCancel() override {
    pulls_->Cancel(this);
    End(GivenUp());
  }
  void OnDone() override {
    --*calls_;
    self_.reset();  // May delete this.
  }

 private:
  FetchReactor(PullSource* pulls, std::shared_ptr<std::atomic<size_t>> calls)
      : pulls_(pulls), calls_(std::move(calls)) {}

  // Waits for the previous write, and begins this one. Returns false when the
  // call is over.
  bool Write(v1::PullResponse response) {
    {
      MutexLock lock(&mu_);
      while (writing_ && !end_.has_value()) changed_.Wait(&mu_);
      if (end_.has_value()) return false;
      writing_ = true;
      response_ = std::move(response);
    }
    StartWrite(&response_);
    return true;
  }
  void End(absl::Status status) {
    {
      MutexLock lock(&mu_);
      if (end_.has_value()) return;
      end_ = std::move(status);
      changed_.SignalAll();
    }
    FinishIfOver();
  }
  // Ends the call, once nothing is being written.
  void FinishIfOver() {
    absl::Status status;
    {
      MutexLock lock(&mu_);
      if (!end_.has_value() || writing_ || finished_) return;
      finished_ = true;
      status = *end_;
    }
    Finish(ToGrpcStatus(status));
  }

  PullSource* const pulls_;
  const std::shared_ptr<std::atomic<size_t>> calls_;
  std::shared_ptr<FetchReactor> self_;
  Mutex mu_;
  CondVar changed_;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  // How the call ends, once that is known.
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
  // gRPC owns it while writing_.
  v1::PullResponse response_;
};

// Serves one executor.
class FetchingService : public v1::Fetching::CallbackService {
 public:
  FetchingService(uint64_t executor, std::string worker_id, PullSource* pulls,
                  FetchingServer::HasSession has_session)
      : executor_(executor),
        worker_id_(std::move(worker_id)),
        pulls_(pulls),
        has_session_(std::move(has_session)) {}
  ~FetchingService() override {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

  void Begin(Descriptor socket) {
    grpc::ServerBuilder builder;
    builder.RegisterService(this);
    // Calls that send no request count, too.
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                               static_cast<int>(FetchingServer::kMaxCalls));
    builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
    builder.SetMaxSendMessageSize(kMaxControlMessageBytes);
    server_ = builder.BuildAndStart();
    // gRPC takes the copy over.
    const int own = fcntl(socket.get(), F_DUPFD_CLOEXEC, 0);
    if (own < 0) {
      log::Error("an executor fetches nothing: no descriptor is left",
                 {{"executor", executor_}});
      return;
    }
    grpc::AddInsecureChannelFromFd(server_.get(), own);
  }

  grpc::ServerWriteReactor<v1::PullResponse>* Fetch(
      grpc::CallbackServerContext* /*context*/,
      const v1::FetchRequest* request) override {
    const size_t others = (*calls_)++;
    FetchReactor* const reactor = FetchReactor::Make(pulls_, calls_);
    // Calls that have ended count until gRPC is done with them.
    if (others >= 2 * FetchingServer::kMaxCalls) {
      reactor->Refuse(
          MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_PULLS",
                    absl::StrCat(others, " fetches of the executor wait")));
    } else if (request->worker_id() == worker_id_ ||
               !has_session_(executor_, request->pull().session_id())) {
      reactor->Refuse(
          MakeError(absl::StatusCode::kPermissionDenied, "NO_SUCH_SESSION",
                    absl::StrCat("executor ", executor_,
                                 " has no lease of this session, or asks for "
                                 "a value of its own worker")));
    } else {
      reactor->Start(*request);
    }
    return reactor;
  }

 private:
  const uint64_t executor_;
  const std::string worker_id_;
  PullSource* const pulls_;
  const FetchingServer::HasSession has_session_;
  const std::shared_ptr<std::atomic<size_t>> calls_ =
      std::make_shared<std::atomic<size_t>>(0);
  std::unique_ptr<grpc::Server> server_;
};

class FetchCall : public MessageCall {
 public:
  FetchCall(std::shared_ptr<grpc::Channel> channel,
            const v1::FetchRequest& request)
      : call_(std::move(channel), kMethod) {
    // The first read reports a failure of the write.
    (void)call_.WriteMessage(request);
  }

  bool Read(v1::PullResponse* response) override {
    const bool read = call_.ReadMessage(response, &invalid_);
    // The thread stops reading, so the call would never end by itself.
    if (!invalid_.ok()) call_.Cancel();
    return read;
  }
  absl::Status Finish() override {
    absl::Status status = FromGrpcStatus(call_.Finish());
    return invalid_.ok() ? status : invalid_;
  }
  void Cancel() override { call_.Cancel(); }
  // Both processes are on this machine.
  bool encrypted() const override { return true; }

 private:
  absl::Status invalid_;  // set if bytes arrived that are no message
  BoundedCall call_;
};

class SupervisorPeers : public PeerConnector {
 public:
  explicit SupervisorPeers(std::shared_ptr<grpc::Channel> channel)
      : channel_(std::move(channel)) {}

  absl::StatusOr<std::unique_ptr<PeerCall>> Open(
      const v1::Peer& peer, const v1::PullRequest& request) override {
    v1::FetchRequest fetch;
    fetch.set_worker_id(peer.worker_id());
    *fetch.mutable_pull() = request;
    return std::make_unique<FetchCall>(channel_, fetch);
  }
  bool finds_workers() const override { return true; }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace

FetchingServer::FetchingServer(std::string worker_id, PullSource* pulls,
                               HasSession has_session)
    : worker_id_(std::move(worker_id)),
      pulls_(pulls),
      has_session_(std::move(has_session)) {}

std::shared_ptr<void> FetchingServer::Serve(uint64_t executor,
                                            Descriptor socket) {
  auto service = std::make_shared<FetchingService>(executor, worker_id_, pulls_,
                                                   has_session_);
  service->Begin(std::move(socket));
  return service;
}

std::unique_ptr<PeerConnector> MakeSupervisorPeers(Descriptor socket) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxControlMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxControlMessageBytes);
  const int own = fcntl(socket.get(), F_DUPFD_CLOEXEC, 0);
  fcntl(own, F_SETFL, fcntl(own, F_GETFL) | O_NONBLOCK);
  return std::make_unique<SupervisorPeers>(
      grpc::CreateCustomInsecureChannelFromFd("supervisor", own, arguments));
}

}  // namespace djinn::worker
