#include "coordinator/scaler/grpc_scaler_service.h"

#include <memory>
#include <vector>

#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/net/grpc_status.h"
#include "common/net/server.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/placement/demand_meter.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/testing/cluster_fixture.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

using externalscaler::ExternalScaler;
using externalscaler::IsActiveResponse;
using externalscaler::ScaledObjectRef;
using ::testing::ElementsAre;

// Serves a real cluster, whose demand a stream checks continuously.
class GrpcScalerServiceTest : public ClusterTest {
 protected:
  GrpcScalerServiceTest() {
    ServerOptions options;
    options.address = "127.0.0.1:0";
    options.services = {&service_};
    server_ = Server::Start(options).value();
    stub_ = ExternalScaler::NewStub(grpc::CreateChannel(
        server_->address(), grpc::InsecureChannelCredentials()));
  }
  ~GrpcScalerServiceTest() override { server_->Shutdown(absl::ZeroDuration()); }

  absl::StatusOr<ClusterDemand> Look() {
    absl::StatusOr<ClusterDemand> demand = demand::Demand(*cluster_);
    MutexLock lock(&mu_);
    ++looks_;
    looked_.SignalAll();
    // Ends a stream after all that it has sent.
    if (over_) return absl::InvalidArgumentError("the test is over");
    return demand;
  }
  // Returns when a complete check has seen the current state.
  void AwaitLooks() {
    MutexLock lock(&mu_);
    const int until = looks_ + 2;
    while (looks_ < until) looked_.Wait(&mu_);
  }
  void End() {
    MutexLock lock(&mu_);
    over_ = true;
  }
  bool IsActive() {
    grpc::ClientContext context;
    IsActiveResponse response;
    EXPECT_TRUE(stub_->IsActive(&context, ScaledObjectRef(), &response).ok());
    return response.result();
  }

  Mutex mu_;
  CondVar looked_;
  int looks_ ABSL_GUARDED_BY(mu_) = 0;
  bool over_ ABSL_GUARDED_BY(mu_) = false;
  GrpcScalerService service_{Scaler(0.7, [this] { return Look(); }),
                             /*look_interval=*/absl::Milliseconds(1)};
  std::unique_ptr<Server> server_;
  std::unique_ptr<ExternalScaler::Stub> stub_;
};

TEST_F(GrpcScalerServiceTest, AStreamDoesNotEndWhatServesOn) {
  StreamId worker = Join(w0_);
  const StreamId session = Open("red");
  Grant(session, 0, worker, &w0_);
  clock_.Advance(config_.worker_timeout);
  EXPECT_EQ(workers::Report(*cluster_, worker, w0_), absl::OkStatus());

  grpc::ClientContext context;
  const auto stream = stub_->StreamIsActive(&context, ScaledObjectRef());
  AwaitLooks();
  // The worker is cut off, but may still serve its sessions.
  clock_.Advance(config_.worker_timeout + absl::Seconds(1));
  coordinator::Tick(*cluster_);
  AwaitLooks();
  EXPECT_TRUE(IsActive());
  // Its session continues on another worker.
  EXPECT_TRUE(Next(session)->has_ended());
  v1::WorkerState w1 = TestWorker("w1");
  worker = Join(w1);
  Grant(session, 0, worker, &w1);
  AwaitLooks();
  sessions::Close(*cluster_, session);
  Execute(worker, &w1);
  AwaitLooks();
  EXPECT_TRUE(IsActive());
  clock_.Advance(config_.lease_valid_for + config_.lease_grace_period);
  AwaitLooks();
  EXPECT_EQ(workers::Report(*cluster_, worker, w1), absl::OkStatus());
  AwaitLooks();
  EXPECT_FALSE(IsActive());
  End();

  std::vector<bool> said;
  IsActiveResponse response;
  while (stream->Read(&response)) said.push_back(response.result());
  EXPECT_THAT(said, ElementsAre(true, false));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(GrpcScalerServiceTest, StreamsAreBounded) {
  clock_.Advance(config_.worker_timeout);
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<IsActiveResponse>> stream;
  };
  const auto open = [this] {
    auto call = std::make_unique<Call>();
    call->stream = stub_->StreamIsActive(&call->context, ScaledObjectRef());
    return call;
  };
  IsActiveResponse response;
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < GrpcScalerService::kMaxStreams; ++i) {
    calls.push_back(open());
    ASSERT_TRUE(calls.back()->stream->Read(&response));
    EXPECT_FALSE(response.result());
  }
  auto refused = open();
  EXPECT_FALSE(refused->stream->Read(&response));
  EXPECT_EQ(ErrorReason(FromGrpcStatus(refused->stream->Finish())),
            "TOO_MANY_STREAMS");
  // A stream that ends makes room once it has ended.
  calls[0]->context.TryCancel();
  EXPECT_FALSE(calls[0]->stream->Read(&response));
  while (!open()->stream->Read(&response)) {
  }
  for (const auto& call : calls) call->context.TryCancel();
}

}  // namespace
}  // namespace djinn::coordinator
