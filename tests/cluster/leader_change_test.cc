// Tests two coordinators that share an etcd server, of which one leads, while a
// worker and clients' sessions go on. All but the clients are processes.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client_lib/cluster/child_process.h"
#include "client_lib/session/remote_session.h"
#include "client_lib/transport/grpc_admin_probe.h"
#include "client_lib/transport/grpc_coordinator_link.h"
#include "client_lib/transport/grpc_worker_connector.h"
#include "common/base/error.h"
#include "common/base/random.h"
#include "common/net/bearer.h"
#include "common/net/channel_options.h"
#include "common/net/grpc_status.h"
#include "coordinator/persistence/etcd_store.h"
#include "coordinator/testing/etcd_server.h"
#include "djinn/v1/admin.grpc.pb.h"
#include "gtest/gtest.h"
#include "tests/cluster/session_calls.h"

namespace djinn {
namespace {

using cluster_tests::Apply;
using cluster_tests::Read;
using cluster_tests::Upload;
using coordinator::EtcdServer;

// Long enough for a busy machine, short enough to detect a hang.
constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr absl::Duration kProbeTimeout = absl::Seconds(5);

class LeaderChangeTest : public testing::Test {
 protected:
  explicit LeaderChangeTest(absl::Duration lease = absl::Seconds(3))
      : lease_(lease) {}

  void SetUp() override {
    etcd_ = EtcdServer::Start().value();
    programs_ = FindClusterPrograms().value();
    std::string folder = "/tmp/djinn-leaders-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    ASSERT_EQ(pipe2(lifeline_, O_CLOEXEC), 0);
    for (const char* const name : {"join", "admin", "tenant"}) {
      Write(absl::StrCat(name, ".token"), absl::StrCat(name, "-0123456789ab"));
    }
    for (int i = 0; i < 2; ++i) {
      Write(absl::StrCat("coordinator-", i, ".yaml"),
            absl::StrCat("listen: ", Address(i), "\netcd:\n  endpoints: [",
                         etcd_->endpoint(),
                         "]\n  lease: ", absl::FormatDuration(lease_),
                         R"(
worker_timeout: 5s
heartbeat_interval: 500ms
lease_request_timeout: 5s
join_token_file: join.token
admin_token_file: admin.token
tenants:
  - name: local
    token_file: tenant.token
    max_sessions: 2
    limits: {memory: 256MiB}
    quota: {memory_bytes: {nominalQuota: 768MiB}}
)"));
    }
    // The first process leads.
    StartCoordinator(0);
    ASSERT_TRUE(Eventually([&] { return Version(0).term() > 0; })) << Logs();
    StartCoordinator(1);
    ASSERT_TRUE(Eventually([&] {
      return Version(1).leader_address() == Address(0);
    })) << Logs();
    Write("worker.yaml", absl::StrCat("worker_id: w0\nlisten: unix:", folder_,
                                      "/w0.sock\ncoordinator: ", Addresses(),
                                      R"(
join_token_file: join.token
drain_timeout: 0s
heartbeat_interval: 500ms
device: {kind: fake, memory: 4GiB, calibrate: false}
)"));
    ASSERT_EQ(worker_.Start(programs_.worker, Arguments("worker"), lifeline_[0],
                            Path("worker.log")),
              absl::OkStatus());
    ASSERT_TRUE(Eventually([&] { return Workers().value_or(0) == 1; }))
        << Logs();
  }

  ~LeaderChangeTest() override {
    for (ChildProcess& coordinator : coordinators_) {
      coordinator.Signal(SIGCONT);
      coordinator.Stop(absl::ZeroDuration());
    }
    worker_.Stop(absl::ZeroDuration());
    for (const int fd : lifeline_) {
      if (fd >= 0) close(fd);
    }
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }

  std::string Path(const std::string& name) const {
    return absl::StrCat(folder_, "/", name);
  }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
    std::filesystem::permissions(Path(name),
                                 std::filesystem::perms::owner_read |
                                     std::filesystem::perms::owner_write);
  }
  std::vector<std::string> Arguments(const std::string& name) const {
    return {absl::StrCat("--config=", Path(name), ".yaml"),
            absl::StrCat("--lifeline_fd=", ChildProcess::kLifelineFd)};
  }
  std::string Address(int i) const {
    return absl::StrCat("unix:", folder_, "/coordinator-", i, ".sock");
  }
  // The follower's address is the first one.
  std::string Addresses() const {
    return absl::StrCat(Address(1), ",", Address(0));
  }
  void StartCoordinator(int i) {
    const std::string name = absl::StrCat("coordinator-", i);
    ASSERT_EQ(coordinators_[i].Start(programs_.coordinator, Arguments(name),
                                     lifeline_[0], Path(name + ".log")),
              absl::OkStatus());
  }
  std::string Logs() const {
    return absl::StrCat(coordinators_[0].LogTail(), "\n",
                        coordinators_[1].LogTail(), "\n", worker_.LogTail());
  }

  template <typename Condition>
  static bool Eventually(Condition condition) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (absl::Now() < deadline) {
      if (condition()) return true;
      absl::SleepFor(absl::Milliseconds(10));
    }
    return false;
  }

  // Returns what the coordinator says of its leadership; nothing if it does not
  // answer.
  v1::VersionInfo Version(int i) const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         absl::ToChronoMilliseconds(kProbeTimeout));
    PutBearer("admin-0123456789ab", &context);
    v1::VersionInfo info;
    const grpc::Status status =
        v1::Admin::NewStub(MakeChannel(Address(i)).value())
            ->GetVersion(&context, v1::GetVersionRequest(), &info);
    return status.ok() ? info : v1::VersionInfo();
  }

  absl::StatusOr<int> Workers() const {
    return CountActiveWorkers(Addresses(), "admin-0123456789ab", kProbeTimeout);
  }

  absl::StatusOr<std::unique_ptr<Session>> TryOpen(
      absl::Duration connect_timeout = kPatience) const {
    SessionOptions options;
    options.connect_timeout = connect_timeout;
    options.operation_timeout = kPatience;
    options.program = "leader_change_test";
    return OpenSession(
        options, *MakeGrpcCoordinatorLink(Addresses(), "tenant-0123456789ab"),
        MakeGrpcWorkerConnector());
  }

  // Adds 1 on the device, and checks the sum.
  static StoragePtr AddOne(VirtualDevice& device, const StoragePtr& x,
                           float expected) {
    const auto sum = Apply(device, "fake::add", x);
    EXPECT_TRUE(sum.ok()) << sum.status();
    if (!sum.ok()) return x;
    const auto values = Read(device, *sum);
    EXPECT_TRUE(values.ok()) << values.status();
    if (values.ok()) {
      EXPECT_EQ(*values, std::vector<float>{expected});
    }
    return *sum;
  }

  const absl::Duration lease_;
  std::unique_ptr<EtcdServer> etcd_;
  ClusterPrograms programs_;
  std::string folder_;
  int lifeline_[2] = {-1, -1};
  ChildProcess coordinators_[2];
  ChildProcess worker_;
};

TEST_F(LeaderChangeTest, AfterAKilledLeaderSessionsQuotasAndLimitsAreKept) {
  const auto first = TryOpen().value();
  // As long as it waits for a lease that it cannot have.
  const auto second = TryOpen(absl::Seconds(10)).value();
  const auto device = *first->Device(0);
  StoragePtr x = AddOne(*device, Upload(*device, {1}), 2);
  const auto other = *second->Device(0);
  AddOne(*other, Upload(*other, {5}), 6);
  const uint64_t term = Version(0).term();
  // The state is written within a fraction of a second.
  coordinator::EtcdOptions etcd;
  etcd.client.endpoints = {etcd_->endpoint()};
  const auto store =
      coordinator::EtcdStore::Make(etcd, RandomSource::Real()).value();
  ASSERT_TRUE(Eventually([&] {
    const auto sessions = store->Get("session/");
    const auto leases = store->Get("lease/");
    return sessions.ok() && sessions->size() == 2 && leases.ok() &&
           leases->size() == 2;
  }));

  // A session is at work all the time.
  std::atomic<bool> stops = false;
  std::atomic<int> worked = 0;
  std::thread at_work([&] {
    StoragePtr y = Upload(*other, {0});
    for (float sum = 1; !stops; ++sum) {
      y = AddOne(*other, y, sum);
      ++worked;
    }
  });
  const absl::Time killed = absl::Now();
  coordinators_[0].Signal(SIGKILL);
  EXPECT_TRUE(coordinators_[0].WaitForExit(kPatience));
  const int worked_before = worked;
  x = AddOne(*device, x, 3);
  // The first new lease, the third of the three that the quota allows.
  const auto third = (*first->Device(1))->Placement();
  const absl::Duration took = absl::Now() - killed;
  EXPECT_GT(worked, worked_before);
  stops = true;
  at_work.join();
  ASSERT_TRUE(third.ok()) << third.status() << Logs();
  RecordProperty("first_lease_ms",
                 static_cast<int>(absl::ToInt64Milliseconds(took)));
  // A second on a quiet machine.
  EXPECT_LE(took, lease_ + absl::Seconds(3));
  EXPECT_GT(Version(1).term(), term);

  // Nothing was lost: the sessions' limit and the quota are used up.
  ASSERT_TRUE(Eventually([&] {
    return ErrorReason(TryOpen(absl::Seconds(5)).status()) ==
           "TOO_MANY_SESSIONS";
  }));
  EXPECT_EQ(ErrorReason((*second->Device(1))->Placement().status()),
            "QUOTA_EXCEEDED");
  // Nothing was counted twice: what a session returns can be had again.
  AddOne(*device, x, 4);
  ASSERT_TRUE(first->Close(kPatience).ok());
  const auto again = TryOpen();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE((*(*again)->Device(0))->Placement().ok());
  EXPECT_TRUE((*(*again)->Device(1))->Placement().ok());

  // The killed one comes back and follows.
  StartCoordinator(0);
  EXPECT_TRUE(Eventually([&] {
    return Version(0).leader_address() == Address(1);
  })) << Logs();
  EXPECT_TRUE((*again)->Close(kPatience).ok());
  AddOne(*other, Upload(*other, {7}), 8);
  EXPECT_TRUE(second->Close(kPatience).ok());
}

TEST_F(LeaderChangeTest, WithoutEtcdDecisionsStopAndWorkGoesOn) {
  const auto session = TryOpen().value();
  const auto device = *session->Device(0);
  StoragePtr x = AddOne(*device, Upload(*device, {1}), 2);
  etcd_->Kill();
  ASSERT_TRUE(Eventually([&] { return Version(0).follows(); })) << Logs();
  float value = 2;
  // Nobody leads, and no longer than the lease did anybody know who did.
  EXPECT_EQ(Version(0).leader_address(), "");
  x = AddOne(*device, x, ++value);
  EXPECT_EQ(Workers().status().code(), absl::StatusCode::kUnavailable);
  x = AddOne(*device, x, ++value);
  EXPECT_TRUE(coordinators_[0].Running());
  EXPECT_TRUE(coordinators_[1].Running());
  EXPECT_TRUE(worker_.Running());
  ASSERT_TRUE(etcd_->Restart().ok());
  const auto other = (*session->Device(1))->Placement();
  EXPECT_TRUE(other.ok()) << other.status() << Logs();
  AddOne(*device, x, ++value);
  EXPECT_TRUE(session->Close(kPatience).ok());
}

TEST_F(LeaderChangeTest, ALeaderThatWasSuspendedFollowsWhenItWakes) {
  const auto session = TryOpen().value();
  const auto device = *session->Device(0);
  StoragePtr x = AddOne(*device, Upload(*device, {1}), 2);
  const uint64_t term = Version(0).term();
  coordinators_[0].Signal(SIGSTOP);
  ASSERT_TRUE(Eventually([&] { return Version(1).term() > term; })) << Logs();
  x = AddOne(*device, x, 3);
  const auto other = (*session->Device(1))->Placement();
  EXPECT_TRUE(other.ok()) << other.status() << Logs();
  coordinators_[0].Signal(SIGCONT);
  EXPECT_TRUE(Eventually([&] {
    return Version(0).leader_address() == Address(1);
  })) << Logs();
  AddOne(*device, x, 4);
  EXPECT_TRUE(session->Close(kPatience).ok());
}

// The test would fail if a stopped leader's lease had to end by itself.
class LongLeaseTest : public LeaderChangeTest {
 protected:
  LongLeaseTest() : LeaderChangeTest(2 * kPatience) {}
};

TEST_F(LongLeaseTest, ALeaderThatStopsIsFollowedAtOnce) {
  const auto session = TryOpen().value();
  const auto device = *session->Device(0);
  AddOne(*device, Upload(*device, {1}), 2);
  coordinators_[0].Signal(SIGTERM);
  EXPECT_TRUE(coordinators_[0].WaitForExit(kPatience));
  EXPECT_TRUE(Eventually([&] { return Version(1).term() > 0; })) << Logs();
  const auto other = (*session->Device(1))->Placement();
  EXPECT_TRUE(other.ok()) << other.status() << Logs();
  EXPECT_TRUE(session->Close(kPatience).ok());
}

}  // namespace
}  // namespace djinn
