// Provides a coordinator whose services tests call over real gRPC, with a fake
// clock.
#ifndef COORDINATOR_SERVER_COORDINATOR_FIXTURE_H_
#define COORDINATOR_SERVER_COORDINATOR_FIXTURE_H_

#include <memory>
#include <string>

#include "common/net/bearer.h"
#include "common/net/channel_options.h"
#include "common/net/grpc_status.h"
#include "coordinator/admin/views.h"
#include "coordinator/server/coordinator.h"
#include "coordinator/testing/testing.h"
#include "djinn/v1/admin.grpc.pb.h"
#include "djinn/v1/session.grpc.pb.h"
#include "djinn/v1/worker_registry.grpc.pb.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {

// A stream under test; every call ends by the context's deadline.
template <typename Request, typename Response>
class Stream {
 public:
  template <typename Open>
  Stream(const std::string& token, Open open) {
    context_.set_deadline(std::chrono::system_clock::now() +
                          std::chrono::seconds(60));
    if (!token.empty()) PutBearer(token, &context_);
    stream_ = open(&context_);
  }
  ~Stream() {
    if (stream_ == nullptr) return;
    context_.TryCancel();
    Finish().IgnoreError();
  }

  void Send(const Request& request) { stream_->Write(request); }
  Response Read() {
    Response response;
    EXPECT_TRUE(stream_->Read(&response));
    return response;
  }
  absl::Status Finish() {
    Response ignored;
    while (stream_->Read(&ignored)) {
    }
    const absl::Status status = FromGrpcStatus(stream_->Finish());
    stream_ = nullptr;
    return status;
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriterInterface<Request, Response>> stream_;
};

class SilentWaker : public Waker {
 public:
  void Wake() override {}
};

using SessionStream = Stream<v1::SessionRequest, v1::SessionResponse>;
using WorkerStream = Stream<v1::WorkerState, v1::DesiredState>;

class CoordinatorTest : public testing::Test {
 protected:
  CoordinatorTest() { Restart(); }

  void Restart(bool tick = false) {
    if (coordinator_ != nullptr) {
      config_.listen = coordinator_->address();
      // Releases the state file.
      coordinator_.reset();
    }
    auto started = Coordinator::Start(
        config_, &clock_, &random_,
        [this]() -> absl::StatusOr<Config> { return next_config_; }, tick);
    ASSERT_TRUE(started.ok()) << started.status();
    coordinator_ = *std::move(started);
    channel_ = MakeChannel(coordinator_->address()).value();
    sessions_ = v1::Session::NewStub(channel_);
    workers_ = v1::WorkerRegistry::NewStub(channel_);
    admin_ = v1::Admin::NewStub(channel_);
  }

  std::unique_ptr<SessionStream> Attach(const std::string& token) {
    return std::make_unique<SessionStream>(
        token, [&](auto* context) { return sessions_->Attach(context); });
  }
  std::unique_ptr<SessionStream> Open(const std::string& token,
                                      std::string* session_id) {
    auto stream = Attach(token);
    v1::SessionRequest request;
    *request.mutable_open() = TestOpen(*session_id);
    stream->Send(request);
    *session_id = stream->Read().opened().session_id();
    return stream;
  }
  std::unique_ptr<WorkerStream> Synchronize(const std::string& token) {
    return std::make_unique<WorkerStream>(
        token, [&](auto* context) { return workers_->Synchronize(context); });
  }
  template <typename Response, typename Request, typename Method>
  absl::StatusOr<Response> Ask(Method method, const Request& request,
                               const std::string& token = "admin-token") {
    grpc::ClientContext context;
    PutBearer(token, &context);
    Response response;
    const absl::Status status =
        FromGrpcStatus(((*admin_).*method)(&context, request, &response));
    if (!status.ok()) return status;
    return response;
  }
  std::vector<v1::SessionInfo> Sessions() {
    return views::Sessions(*coordinator_->cluster(), {}).items;
  }

  Config config_ = TestConfig();
  // The configuration that a reload finds.
  absl::StatusOr<Config> next_config_ = TestConfig();
  FakeClock clock_;
  FakeRandomSource random_;
  std::unique_ptr<Coordinator> coordinator_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Session::Stub> sessions_;
  std::unique_ptr<v1::WorkerRegistry::Stub> workers_;
  std::unique_ptr<v1::Admin::Stub> admin_;
};

inline v1::SessionRequest AskLease(uint32_t device) {
  v1::SessionRequest request;
  *request.mutable_lease() = TestLeaseRequest(device);
  return request;
}

}  // namespace djinn::coordinator

#endif  // COORDINATOR_SERVER_COORDINATOR_FIXTURE_H_
