// Tests programs, with real processes, whose worker is drained while they run.
// Their results equal those of an undisturbed program.
#include <signal.h>

#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/cluster/embedded_cluster.h"
#include "client_lib/session/remote_session.h"
#include "client_lib/transport/grpc_coordinator_link.h"
#include "client_lib/transport/grpc_worker_connector.h"
#include "common/base/error.h"
#include "djinn/v1/admin.pb.h"
#include "gtest/gtest.h"
#include "tests/e2e/admin_client.h"
#include "tests/schedules/fake_calls.h"

namespace djinn {
namespace {

using schedules::FakeCall;
using schedules::FloatView;

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr int64_t kCount = 1 << 18;  // floats of the cache

class MigrationTest : public testing::Test {
 protected:
  MigrationTest() {
    ClusterOptions options;
    options.workers = 2;
    options.device_kind = "fake";
    options.worker_memory_bytes = 64 << 20;
    cluster_ = ClusterProcesses::Start(options).value();
    admin_ = std::make_unique<AdminClient>(cluster_->coordinator_address(),
                                           cluster_->admin_token_file());
    std::ifstream file(cluster_->token_file());
    std::string token;
    file >> token;
    SessionOptions session;
    session.connect_timeout = session.operation_timeout = kPatience;
    session_ = OpenSession(session,
                           *MakeGrpcCoordinatorLink(
                               cluster_->coordinator_address(), token),
                           MakeGrpcWorkerConnector())
                   .value();
    device_ = *session_->Device(0);
  }

  static StoragePtr Upload(VirtualDevice& device,
                           const std::vector<float>& values) {
    auto bytes = std::make_shared<std::string>(
        reinterpret_cast<const char*>(values.data()),
        values.size() * sizeof(float));
    const StoragePtr storage = device.NewStorage(bytes->size());
    const absl::Status status =
        device.Upload(0, storage.get(), {*bytes, bytes});
    EXPECT_TRUE(status.ok()) << status;
    return storage;
  }
  static std::vector<float> Read(VirtualDevice& device,
                                 const StoragePtr& storage, int64_t count) {
    std::vector<float> values(count);
    EXPECT_EQ(device.Read(0, storage.get(), FloatView(count), values.data(),
                          count * sizeof(float)),
              absl::OkStatus());
    return values;
  }
  void Add(const StoragePtr& x, const StoragePtr& y, int64_t count,
           int64_t offset = 0) {
    FakeCall call("fake::add_");
    call.Tensor(x.get(), count, kReads | kWrites, offset)
        .Tensor(y.get(), count);
    EXPECT_EQ(device_->Record(0, call.get()), absl::OkStatus());
  }
  StoragePtr Draw(const StoragePtr& generator, int64_t count) {
    const StoragePtr result = device_->NewStorage(count * sizeof(float));
    FakeCall call("fake::draw");
    call.Integer(count).Generator(generator.get()).Result(result.get(), count);
    EXPECT_EQ(device_->Record(0, call.get()), absl::OkStatus());
    return result;
  }
  std::string WorkerOf(VirtualDevice& device) {
    const auto placement = device.Placement();
    EXPECT_TRUE(placement.ok()) << placement.status();
    return placement.ok() ? placement->worker_id : "";
  }
  v1::MigrationInfo LastMigration() {
    v1::ExplainSessionRequest request;
    request.set_session_id(session_->session_id());
    v1::SessionExplanation explanation;
    EXPECT_TRUE(
        admin_->Call(&v1::Admin::Stub::ExplainSession, request, &explanation));
    return explanation.devices(0).migration();
  }
  void Drain(const std::string& worker) {
    v1::CordonWorkerRequest request;
    request.set_worker_id(worker);
    request.set_cordoned(true);
    request.set_drain(true);
    v1::WorkerInfo info;
    EXPECT_TRUE(admin_->Call(&v1::Admin::Stub::CordonWorker, request, &info));
    EXPECT_TRUE(info.draining());
  }

  std::unique_ptr<ClusterProcesses> cluster_;
  std::unique_ptr<AdminClient> admin_;
  std::unique_ptr<Session> session_;
  std::shared_ptr<VirtualDevice> device_;
};

TEST_F(MigrationTest, ALoopGoesOnAtAnotherWorker) {
  // The program has constant weights, a cache that grows in place, and random
  // numbers.
  const StoragePtr weights = Upload(*device_, std::vector<float>(kCount, 2));
  const StoragePtr cache = Upload(*device_, std::vector<float>(kCount, 0));
  const StoragePtr generator = device_->NewStorage(0);
  ASSERT_TRUE(device_->Seed(0, generator.get(), 1000).ok());
  const std::string before = WorkerOf(*device_);
  float drawn = 1000;
  std::string worker = before;
  int step = 0;
  // Runs until the device has migrated, and some steps more.
  for (int after = 0; after < 10; ++step) {
    ASSERT_LT(step, 100'000) << "it does not go";
    // Writes an element of the cache, and reads all of it.
    Add(cache, weights, 1, step % 8);
    const StoragePtr token = Draw(generator, 2);
    Add(token, weights, 2);
    const std::vector<float> got = Read(*device_, token, 2);
    ASSERT_EQ(got, (std::vector<float>{drawn + 2, drawn + 3})) << step;
    drawn += 2;
    device_->MarkDead(token.get());
    if (step == 20) Drain(before);
    worker = WorkerOf(*device_);
    if (worker != before) ++after;
  }
  std::vector<float> expected(8, 0);
  for (int i = 0; i < step; ++i) expected[i % 8] += 2;
  EXPECT_EQ(Read(*device_, cache, 8), expected);
  EXPECT_EQ(Read(*device_, weights, kCount), std::vector<float>(kCount, 2));
  const v1::MigrationInfo migration = LastMigration();
  EXPECT_EQ(migration.state(), v1::MigrationInfo::DONE);
  EXPECT_EQ(migration.reason(), "drain");
  EXPECT_EQ(migration.from_worker_id(), before);
  // The state has the weights and the cache once each.
  const uint64_t state = 2 * kCount * sizeof(float);
  EXPECT_GE(migration.moved_bytes(), state);
  EXPECT_LT(migration.moved_bytes(), state + 20'000);
  // The old worker holds nothing any more and may stop.
  v1::GetWorkerRequest request;
  request.set_worker_id(before);
  for (int i = 0; i < 3000; ++i) {
    v1::WorkerInfo info;
    ASSERT_TRUE(admin_->Call(&v1::Admin::Stub::GetWorker, request, &info));
    if (info.lease_count() == 0 && info.session_count() == 0) break;
    ASSERT_LT(i, 2999) << info.ShortDebugString();
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_TRUE(session_->Close(kPatience).ok());
}

TEST_F(MigrationTest, AWorkerThatIsKilledAfterwardsIsNotMissed) {
  const StoragePtr value = Upload(*device_, std::vector<float>(kCount, 3));
  const std::string before = WorkerOf(*device_);
  v1::MigrateSessionRequest request;
  request.set_session_id(session_->session_id());
  v1::MigrateSessionResponse response;
  ASSERT_TRUE(
      admin_->Call(&v1::Admin::Stub::MigrateSession, request, &response));
  ASSERT_EQ(response.migrations_size(), 1);
  const std::string after = response.migrations(0).to_worker_id();
  EXPECT_NE(after, before);
  for (int i = 0; WorkerOf(*device_) != after; ++i) {
    ASSERT_LT(i, 3000);
    absl::SleepFor(absl::Milliseconds(10));
  }
  Add(value, value, kCount);
  kill(cluster_->worker_pids()[before == "worker-0" ? 0 : 1], SIGKILL);
  EXPECT_EQ(Read(*device_, value, kCount), std::vector<float>(kCount, 6));
}

TEST_F(MigrationTest, WithoutACoordinatorItFinishesWhatItBegan) {
  const StoragePtr value = Upload(*device_, std::vector<float>(kCount, 3));
  const std::string before = WorkerOf(*device_);
  Drain(before);
  // Kills the coordinator at any stage of the migration.
  kill(cluster_->coordinator_pid(), SIGKILL);
  for (int i = 0; i < 20; ++i) {
    Add(value, value, 1);
    Read(*device_, value, 1);
  }
  ASSERT_TRUE(cluster_->RestartCoordinator().ok());
  for (int i = 0; i < 20; ++i) {
    Add(value, value, 1);
    Read(*device_, value, 1);
  }
  // A float represents 3 * 2^40 exactly.
  EXPECT_EQ(Read(*device_, value, 1)[0], 3 * 1099511627776.0f);
  EXPECT_TRUE(session_->Close(kPatience).ok());
}

}  // namespace
}  // namespace djinn
