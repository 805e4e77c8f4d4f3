// Tests candidates that share a store in memory, over real gRPC.
#include "coordinator/server/replica.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/error.h"
#include "common/net/bearer.h"
#include "common/net/bounded_call.h"
#include "common/net/channel_options.h"
#include "common/net/grpc_status.h"
#include "coordinator/persistence/memory_store.h"
#include "coordinator/testing/testing.h"
#include "djinn/v1/admin.grpc.pb.h"
#include "djinn/v1/session.pb.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gmock/gmock.h"
#include "grpc/health/v1/health.pb.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A store on another machine: one in memory, which may be out of reach.
struct Remote {
  MemoryStore store;
  Mutex mu;
  bool away ABSL_GUARDED_BY(mu) = false;

  void SetAway(bool is_away) {
    MutexLock lock(&mu);
    away = is_away;
  }
  absl::Status Reach() {
    MutexLock lock(&mu);
    if (!away) return absl::OkStatus();
    return MakeError(absl::StatusCode::kUnavailable, "STORE_UNREACHABLE",
                     "no answer");
  }
};

// One process's access to it.
class SharedStore : public Store {
 public:
  explicit SharedStore(Remote* remote) : remote_(*remote) {}

  bool persistent() const override { return true; }
  absl::StatusOr<std::vector<Entry>> Get(absl::string_view prefix) override {
    const absl::Status reached = remote_.Reach();
    if (!reached.ok()) return reached;
    return remote_.store.Get(prefix);
  }
  absl::StatusOr<uint64_t> PutIf(absl::Span<const Write> writes) override {
    const absl::Status reached = remote_.Reach();
    if (!reached.ok()) return reached;
    return remote_.store.PutIf(writes);
  }
  absl::StatusOr<Lease> Acquire(absl::string_view name, absl::string_view owner,
                                absl::Time now, absl::Duration ttl) override {
    const absl::Status reached = remote_.Reach();
    if (!reached.ok()) return reached;
    return remote_.store.Acquire(name, owner, now, ttl);
  }
  absl::Status Release(absl::string_view name,
                       absl::string_view owner) override {
    const absl::Status reached = remote_.Reach();
    if (!reached.ok()) return reached;
    return remote_.store.Release(name, owner);
  }

 private:
  Remote& remote_;
};

class ReplicaTest : public testing::Test {
 protected:
  std::unique_ptr<Replica> Start() {
    Config config = TestConfig();
    config.etcd.lease = absl::Seconds(1);
    auto started = Replica::Start(
        std::move(config), std::make_unique<SharedStore>(&remote_),
        Clock::Real(), RandomSource::Real(), [this] { return file_; });
    EXPECT_TRUE(started.ok()) << started.status();
    return *std::move(started);
  }

  template <typename Condition>
  static bool Eventually(Condition condition) {
    for (int i = 0; i < 3000; ++i) {
      if (condition()) return true;
      absl::SleepFor(absl::Milliseconds(10));
    }
    return false;
  }

  template <typename Response, typename Request, typename Method>
  static absl::StatusOr<Response> Ask(
      const Replica& replica, Method method, const Request& request,
      const std::string& token = "admin-token") {
    const auto stub =
        v1::Admin::NewStub(MakeChannel(replica.address()).value());
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::seconds(60));
    PutBearer(token, &context);
    Response response;
    const absl::Status status =
        FromGrpcStatus(((*stub).*method)(&context, request, &response));
    if (!status.ok()) return status;
    return response;
  }
  static absl::StatusOr<v1::VersionInfo> Version(
      const Replica& replica, const std::string& token = "admin-token") {
    return Ask<v1::VersionInfo>(replica, &v1::Admin::Stub::GetVersion,
                                v1::GetVersionRequest(), token);
  }
  static bool Leads(const Replica& replica) {
    const auto info = Version(replica);
    return info.ok() && info->term() > 0 && !info->follows();
  }
  // Returns the status with which a stream ends after its first message.
  static absl::Status Refusal(const Replica& replica, const std::string& method,
                              const google::protobuf::Message& first) {
    BoundedCall call(MakeChannel(replica.address()).value(), method,
                     {BearerMetadata("any")});
    call.WriteMessage(first);
    std::vector<grpc::Slice> ignored;
    while (call.Read(&ignored)) {
    }
    return FromGrpcStatus(call.Finish());
  }
  static grpc::health::v1::HealthCheckResponse::ServingStatus Health(
      const Replica& replica, const std::string& service) {
    BoundedCall call(MakeChannel(replica.address()).value(),
                     "/grpc.health.v1.Health/Check");
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    call.WriteMessage(request);
    call.EndWrites();
    grpc::health::v1::HealthCheckResponse response;
    absl::Status invalid;
    EXPECT_TRUE(call.ReadMessage(&response, &invalid)) << invalid;
    return response.status();
  }

  Remote remote_;
  // The content of the configuration file.
  absl::StatusOr<Config> file_ = TestConfig();
};

TEST_F(ReplicaTest, AFollowerNamesTheLeaderAndDoesNothingElse) {
  const auto leader = Start();
  ASSERT_TRUE(Eventually([&] { return Leads(*leader); }));
  const auto follower = Start();
  ASSERT_TRUE(Eventually([&] {
    const auto info = Version(*follower);
    return info.ok() && info->leader_address() == leader->address();
  }));
  const auto info = Version(*follower);
  EXPECT_TRUE(info->follows());
  EXPECT_EQ(info->term(), 0u);
  EXPECT_FALSE(info->version().empty());
  // Reads of the cluster's state, writes, and what clients and workers call.
  absl::Status refused[] = {
      Ask<v1::ListWorkersResponse>(*follower, &v1::Admin::Stub::ListWorkers,
                                   v1::ListWorkersRequest())
          .status(),
      Ask<v1::QueueInfo>(*follower, &v1::Admin::Stub::StopQueue,
                         v1::StopQueueRequest())
          .status(),
      Refusal(*follower, "/djinn.v1.Session/Attach", v1::SessionRequest()),
      Refusal(*follower, "/djinn.v1.WorkerRegistry/Synchronize",
              TestWorker("w")),
  };
  for (const absl::Status& status : refused) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(ErrorReason(status), "NOT_LEADER") << status;
    EXPECT_EQ(ErrorMetadataValue(status, "leader"), leader->address());
  }
  using Response = grpc::health::v1::HealthCheckResponse;
  // Health follows readiness after a fraction of a second.
  EXPECT_TRUE(
      Eventually([&] { return Health(*follower, "") == Response::SERVING; }));
  // It sends clients to the leader, and does nothing for the others.
  EXPECT_EQ(Health(*follower, "djinn.v1.Session"), Response::SERVING);
  EXPECT_EQ(Health(*follower, "djinn.v1.Admin"), Response::NOT_SERVING);
  EXPECT_EQ(Health(*leader, "djinn.v1.Session"), Response::SERVING);
}

TEST_F(ReplicaTest, AFollowerAdmitsTheOperatorsOfItsReloadedFile) {
  const auto leader = Start();
  ASSERT_TRUE(Eventually([&] { return Leads(*leader); }));
  const auto follower = Start();
  const auto reload = [&] {
    testing::internal::CaptureStderr();
    follower->Reload();
    return testing::internal::GetCapturedStderr();
  };
  file_->admin_token = "new-secret";
  EXPECT_THAT(reload(),
              AllOf(HasSubstr("msg=audit who=SIGHUP"),
                    HasSubstr("after=\"changed: operator admin (token)\""),
                    HasSubstr("result=OK"), Not(HasSubstr("secret"))));
  EXPECT_EQ(ErrorReason(Version(*follower).status()), "TOKEN_UNKNOWN");
  EXPECT_EQ(Version(*follower, "new-secret").status(), absl::OkStatus());
  // A wrong file changes nothing.
  file_ = absl::InvalidArgumentError("no such key");
  EXPECT_THAT(reload(),
              AllOf(HasSubstr("result=BAD_CONFIG"), HasSubstr("no such key")));
  EXPECT_EQ(Version(*follower, "new-secret").status(), absl::OkStatus());
}

TEST_F(ReplicaTest, AnElectedProcessReadsItsFileAndAuditsTheChange) {
  auto first = Start();
  ASSERT_TRUE(Eventually([&] { return Leads(*first); }));
  const auto second = Start();
  file_->operators = {{"eva", Role::kAdmin, "eva-secret"}};
  testing::internal::CaptureStderr();
  first->Stop();
  const bool leads = Eventually([&] { return Leads(*second); });
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("msg=audit who=election"),
                    HasSubstr("after=\"added: operator eva (admin)\""),
                    Not(HasSubstr("secret"))));
  ASSERT_TRUE(leads);
  EXPECT_EQ(Version(*second, "eva-secret").status(), absl::OkStatus());
}

TEST_F(ReplicaTest, TheNextLeaderHasTheStateAndALaterTerm) {
  auto first = Start();
  ASSERT_TRUE(Eventually([&] { return Leads(*first); }));
  const auto second = Start();
  v1::StopQueueRequest stop;
  stop.set_tenant("red");
  ASSERT_TRUE(
      Ask<v1::QueueInfo>(*first, &v1::Admin::Stub::StopQueue, stop).ok());
  const uint64_t term = Version(*first)->term();
  first->Stop();
  ASSERT_TRUE(Eventually([&] { return Leads(*second); }));
  EXPECT_GT(Version(*second)->term(), term);
  v1::GetQueueRequest get;
  get.set_tenant("red");
  const auto queue =
      Ask<v1::QueueInfo>(*second, &v1::Admin::Stub::GetQueue, get);
  ASSERT_TRUE(queue.ok()) << queue.status();
  EXPECT_TRUE(queue->has_stop());
}

TEST_F(ReplicaTest, WithoutTheStoreNobodyLeadsAndThenOneDoesAgain) {
  const auto replica = Start();
  ASSERT_TRUE(Eventually([&] { return Leads(*replica); }));
  const std::string address = replica->address();
  remote_.SetAway(true);
  ASSERT_TRUE(Eventually([&] {
    const auto info = Version(*replica);
    return info.ok() && info->follows();
  }));
  EXPECT_EQ(Version(*replica)->leader_address(), "");
  EXPECT_EQ(ErrorReason(Refusal(*replica, "/djinn.v1.Session/Attach",
                                v1::SessionRequest())),
            "NOT_LEADER");
  using Response = grpc::health::v1::HealthCheckResponse;
  EXPECT_TRUE(Eventually(
      [&] { return Health(*replica, "") == Response::NOT_SERVING; }));
  remote_.SetAway(false);
  EXPECT_TRUE(Eventually([&] { return Leads(*replica); }));
  EXPECT_EQ(replica->address(), address);
}

TEST_F(ReplicaTest, ALeaderWhoseLeaseAnotherTookFollowsIt) {
  const auto first = Start();
  ASSERT_TRUE(Eventually([&] { return Leads(*first); }));
  const std::string owner = ErrorMetadataValue(
      remote_.store.Acquire("leader", "none", absl::Now(), absl::Seconds(1))
          .status(),
      "owner");
  ASSERT_FALSE(owner.empty());
  // As after a pause of the process in which its lease ended.
  absl::StatusOr<Store::Lease> taken;
  do {
    ASSERT_TRUE(remote_.store.Release("leader", owner).ok());
    taken = remote_.store.Acquire("leader", "id host:1", absl::Now(),
                                  absl::Hours(1));
    // The process may have been quicker to acquire it again.
  } while (ErrorReason(taken.status()) == "STORE_LEASE_HELD");
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_TRUE(Eventually([&] {
    const auto info = Version(*first);
    return info.ok() && info->follows() && info->leader_address() == "host:1";
  }));
}

}  // namespace
}  // namespace djinn::coordinator
