// Suspends a coordinator for longer than a worker may be silent. The
// coordinator's own absence must end no session, and no active session may
// notice it.
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client_lib/cluster/embedded_cluster.h"
#include "client_lib/session/remote_session.h"
#include "client_lib/transport/grpc_coordinator_link.h"
#include "client_lib/transport/grpc_worker_connector.h"
#include "common/base/status_macros.h"
#include "djinn/v1/admin.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/admin_client.h"
#include "tests/e2e/eventually.h"
#include "tests/schedules/fake_calls.h"

namespace djinn {
namespace {

using schedules::FakeCall;
using schedules::FloatView;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kWorkerTimeout = absl::Seconds(1);
constexpr int kRequests = 200;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class StandstillTest : public testing::Test {
 protected:
  void SetUp() override {
    ClusterOptions options;
    options.device_kind = "fake";
    options.worker_memory_bytes = 64 << 20;
    options.worker_timeout = kWorkerTimeout;
    cluster_ = ClusterProcesses::Start(options).value();
    SessionOptions session;
    session.connect_timeout = absl::Seconds(20);
    session.operation_timeout = absl::Seconds(20);
    session.program = "standstill_test";
    auto link = MakeGrpcCoordinatorLink(cluster_->coordinator_address(),
                                        ReadFirstWord(cluster_->token_file()));
    ASSERT_TRUE(link.ok()) << link.status();
    session_ = OpenSession(session, *std::move(link), MakeGrpcWorkerConnector())
                   .value();
    auto device = session_->Device(0);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *device;
    const auto zero = std::make_shared<std::string>(sizeof(float), '\0');
    counter_ = device_->NewStorage(sizeof(float));
    ASSERT_TRUE(device_->Upload(0, counter_.get(), {*zero, zero}).ok());
  }

  void TearDown() override {
    if (counter_) device_->MarkDead(counter_.get());
    if (session_ != nullptr) {
      EXPECT_TRUE(session_->Close(absl::Seconds(5)).ok());
    }
  }

  // Adds one on the worker, and reads the sum.
  absl::StatusOr<float> CountOn() {
    StoragePtr sum = device_->NewStorage(sizeof(float));
    FakeCall call("fake::add");
    call.Tensor(counter_.get(), 1).Real(1.0).Result(sum.get(), 1);
    DJINN_RETURN_IF_ERROR(device_->Record(0, call.get()));
    device_->MarkDead(counter_.get());
    counter_ = std::move(sum);
    return Count();
  }
  absl::StatusOr<float> Count() {
    float value = -1;
    DJINN_RETURN_IF_ERROR(
        device_->Read(0, counter_.get(), FloatView(1), &value, sizeof(value)));
    return value;
  }
  // Returns the median latency of requests that are made one after the other
  // for at least the time `at_least`.
  absl::Duration MedianLatency(absl::Duration at_least = {}) {
    std::vector<absl::Duration> taken;
    const absl::Time begin = absl::Now();
    while (taken.size() < kRequests || absl::Now() - begin < at_least) {
      const absl::Time start = absl::Now();
      const absl::StatusOr<float> count = CountOn();
      taken.push_back(absl::Now() - start);
      EXPECT_TRUE(count.ok()) << count.status();
      if (!count.ok()) break;
      EXPECT_EQ(*count, ++counted_);
    }
    std::nth_element(taken.begin(), taken.begin() + taken.size() / 2,
                     taken.end());
    return taken[taken.size() / 2];
  }

  std::unique_ptr<ClusterProcesses> cluster_;
  std::unique_ptr<Session> session_;
  std::shared_ptr<VirtualDevice> device_;
  StoragePtr counter_;
  float counted_ = 0;
};

TEST_F(StandstillTest, SessionsGoOnThroughItAndAfterIt) {
  const absl::Duration before = MedianLatency();
  const pid_t pid = cluster_->coordinator_pid();
  ASSERT_EQ(kill(pid, SIGSTOP), 0);
  const absl::Duration meanwhile = MedianLatency(2 * kWorkerTimeout);
  ASSERT_EQ(kill(pid, SIGCONT), 0);
  // The bound is loose, because a test's machine is busy.
  EXPECT_LT(meanwhile, 5 * before + absl::Milliseconds(1));

  EXPECT_TRUE(Eventually([&] {
    return absl::StrContains(ReadAll(cluster_->coordinator_log()),
                             "process was suspended");
  }));
  const AdminClient admin(cluster_->coordinator_address(),
                          cluster_->admin_token_file());
  EXPECT_EQ(admin.Worker("worker-0").state(), v1::WorkerInfo::ACTIVE);
  EXPECT_EQ(admin.SessionOf("standstill_test").state(),
            v1::SessionInfo::ATTACHED);
  const absl::StatusOr<float> count = Count();
  ASSERT_TRUE(count.ok()) << count.status();
  EXPECT_EQ(*count, counted_);
  MedianLatency();
  const std::string log = ReadAll(cluster_->coordinator_log());
  EXPECT_THAT(log, Not(HasSubstr("worker lost")));
  EXPECT_THAT(log, Not(HasSubstr("lease ended")));
}

}  // namespace
}  // namespace djinn
