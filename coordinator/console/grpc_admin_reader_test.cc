// Tests the reader against Admin services in this process, over real gRPC.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/net/grpc_status.h"
#include "coordinator/console/admin_reader.h"
#include "djinn/v1/admin.grpc.pb.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"

namespace djinn::console {
namespace {

// A coordinator that lists one worker, whose name is the coordinator's, while
// it leads.
class FakeCoordinator : public v1::Admin::Service {
 public:
  explicit FakeCoordinator(std::string name) : name_(std::move(name)) {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("localhost:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("localhost:", port);
  }

  const std::string& address() const { return address_; }
  int calls() const {
    MutexLock lock(&mu_);
    return calls_;
  }
  // From now on, it follows the coordinator at this address, or answers with
  // this status.
  void Follow(const std::string& leader) {
    Answer(MakeError(absl::StatusCode::kUnavailable, "NOT_LEADER", "follows",
                     {{"leader", leader}}));
  }
  void Answer(absl::Status status) {
    MutexLock lock(&mu_);
    status_ = std::move(status);
  }

  grpc::Status ListWorkers(grpc::ServerContext* /*context*/,
                           const v1::ListWorkersRequest* /*request*/,
                           v1::ListWorkersResponse* response) override {
    MutexLock lock(&mu_);
    ++calls_;
    response->add_workers()->set_worker_id(name_);
    return ToGrpcStatus(status_);
  }

 private:
  const std::string name_;
  std::string address_;
  mutable Mutex mu_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  int calls_ ABSL_GUARDED_BY(mu_) = 0;
  std::unique_ptr<grpc::Server> server_;
};

class GrpcAdminReaderTest : public testing::Test {
 protected:
  // Returns the coordinator that answered, or the reason of the error.
  std::string Ask() {
    const absl::StatusOr<v1::ListWorkersResponse> workers = reader_->Workers();
    return workers.ok() ? workers->workers(0).worker_id()
                        : ErrorReason(workers.status());
  }

  FakeCoordinator a_{"a"}, b_{"b"}, c_{"c"};
  const std::unique_ptr<CoordinatorChannels> channels_ =
      CoordinatorChannels::Make(
          absl::StrCat(a_.address(), ",", b_.address(), ",", c_.address()))
          .value();
  const std::unique_ptr<AdminReader> reader_ =
      MakeGrpcAdminReader(channels_.get(), "token", absl::Minutes(2));
};

TEST_F(GrpcAdminReaderTest, FollowsTheLeaderWhenItChanges) {
  b_.Follow(a_.address());
  c_.Follow(a_.address());
  EXPECT_EQ(Ask(), "a");
  c_.Answer(absl::OkStatus());
  a_.Follow(c_.address());
  EXPECT_EQ(Ask(), "c");
  EXPECT_EQ(b_.calls(), 0);
  EXPECT_EQ(Ask(), "c");
  EXPECT_EQ(a_.calls(), 2);
}

TEST_F(GrpcAdminReaderTest, WithoutALeaderItAsksEachOnceAndFindsTheNext) {
  a_.Follow("");
  b_.Follow("");
  c_.Follow("");
  EXPECT_EQ(Ask(), "NOT_LEADER");
  EXPECT_EQ(a_.calls() + b_.calls() + c_.calls(), 3);
  b_.Answer(absl::OkStatus());
  EXPECT_EQ(Ask(), "b");
}

TEST_F(GrpcAdminReaderTest, ARefusalOfTheLeaderIsFinal) {
  a_.Answer(MakeError(absl::StatusCode::kPermissionDenied, "TOKEN_UNKNOWN",
                      "unknown token"));
  EXPECT_EQ(Ask(), "TOKEN_UNKNOWN");
  EXPECT_EQ(b_.calls() + c_.calls(), 0);
}

TEST_F(GrpcAdminReaderTest, AfterASilentCoordinatorTheNextCallAsksAnother) {
  a_.Answer(absl::DeadlineExceededError("silent"));
  EXPECT_EQ(Ask(), "");
  EXPECT_EQ(b_.calls(), 0);
  EXPECT_EQ(Ask(), "b");
}

}  // namespace
}  // namespace djinn::console
