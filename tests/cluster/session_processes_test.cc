// Tests what happens to a session's runs when a process ends. The coordinator
// and the workers are processes, and the workers have fake devices.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/cluster/embedded_cluster.h"
#include "client_lib/session/remote_session.h"
#include "client_lib/transport/grpc_coordinator_link.h"
#include "client_lib/transport/grpc_worker_connector.h"
#include "common/base/error.h"
#include "gtest/gtest.h"
#include "tests/cluster/session_calls.h"
#include "tests/e2e/admin_client.h"

namespace djinn {
namespace {

using cluster_tests::Apply;
using cluster_tests::Floats;
using cluster_tests::Read;
using cluster_tests::Upload;

constexpr uint64_t kLargeBytes = 3 << 20;

ClusterOptions FakeWorkers(int workers) {
  ClusterOptions options;
  options.workers = workers;
  options.device_kind = "fake";
  options.worker_memory_bytes = 256 << 20;
  options.worker_disk_bytes = 64 << 20;
  return options;
}

// Long enough for processes that end, short enough to detect a hang.
constexpr absl::Duration kPatience = absl::Seconds(30);

bool IsGone(pid_t pid) { return kill(pid, 0) != 0; }

// Waits for a condition that another process makes true.
template <typename Condition>
bool Eventually(Condition condition) {
  for (int i = 0; i < 3000; ++i) {
    if (condition()) return true;
    usleep(10000);
  }
  return false;
}

// This test is first, because gRPC must not have been used before a fork.
TEST(LifelineTest, NothingSurvivesAParentThatIsKilled) {
  int channel[2];
  ASSERT_EQ(pipe(channel), 0);
  const pid_t parent = fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    auto cluster = ClusterProcesses::Start(FakeWorkers(2));
    std::string told = "failed";
    if (cluster.ok()) {
      told = absl::StrCat(
          (*cluster)->coordinator_pid(), " ", (*cluster)->worker_pids()[0], " ",
          (*cluster)->worker_pids()[1], " ", (*cluster)->token_file());
    }
    if (write(channel[1], told.data(), told.size()) < 0) _exit(1);
    raise(SIGKILL);
  }
  close(channel[1]);
  char buffer[1000] = {};
  ASSERT_GT(read(channel[0], buffer, sizeof(buffer) - 1), 0);
  close(channel[0]);
  waitpid(parent, nullptr, 0);
  std::istringstream told(buffer);
  for (int i = 0; i < 3; ++i) {
    pid_t pid = 0;
    told >> pid;
    ASSERT_GT(pid, 0) << buffer;
    EXPECT_TRUE(Eventually([pid] { return IsGone(pid); }));
  }
  std::string token_file;
  told >> token_file;
  // The next cluster cleans up. Another test's cluster may have done so before.
  EXPECT_TRUE(ClusterProcesses::Start(FakeWorkers(2)).ok());
  EXPECT_NE(access(token_file.c_str(), F_OK), 0);
}

class SessionProcessesTest : public testing::Test {
 protected:
  SessionProcessesTest() { Start(/*workers=*/2); }

  // Replaces the running cluster by another one.
  void Start(int workers) {
    cluster_.reset();
    cluster_ = ClusterProcesses::Start(FakeWorkers(workers)).value();
  }

  absl::StatusOr<std::unique_ptr<Session>> TryOpen(
      const std::string& token, SessionOptions options = {}) {
    options.connect_timeout = kPatience;
    options.operation_timeout = kPatience;
    options.program = "session_processes_test";
    return OpenSession(
        options,
        *MakeGrpcCoordinatorLink(cluster_->coordinator_address(), token),
        MakeGrpcWorkerConnector());
  }
  std::unique_ptr<Session> Open(SessionOptions options = {}) {
    std::ifstream file(cluster_->token_file());
    std::string token;
    file >> token;
    return TryOpen(token, std::move(options)).value();
  }

  std::unique_ptr<ClusterProcesses> cluster_;
};

TEST_F(SessionProcessesTest, UploadsRunsAndReads) {
  const auto session = Open();
  const auto device = *session->Device(0);
  const StoragePtr x = Upload(*device, {1, 2, 3});
  const auto y = Apply(*device, "fake::add", x);
  ASSERT_TRUE(y.ok()) << y.status();
  const auto values = Read(*device, *y);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(*values, (std::vector<float>{2, 3, 4}));
  EXPECT_EQ(session->tenant(), "local");
  EXPECT_EQ(session->Close(kPatience), absl::OkStatus());
}

TEST_F(SessionProcessesTest, AnErrorPoisonsOnlyWhatDependsOnIt) {
  const auto session = Open();
  const auto device = *session->Device(0);
  const StoragePtr x = Upload(*device, {1, 2, 3});
  const auto bad = Apply(*device, "fake::fail", x);
  const auto worse = Apply(*device, "fake::add", *bad);
  const auto good = Apply(*device, "fake::add", x);
  const absl::Status first = Read(*device, *worse).status();
  const absl::Status second = Read(*device, *bad).status();
  EXPECT_FALSE(first.ok());
  EXPECT_EQ(ErrorMetadataValue(first, "error_id"),
            ErrorMetadataValue(second, "error_id"));
  EXPECT_EQ(ErrorMetadataValue(first, "operator"), "fake::fail");
  EXPECT_EQ(*Read(*device, *good), (std::vector<float>{2, 3, 4}));
  EXPECT_EQ(session->RootErrors().size(), 1u);
  EXPECT_TRUE(session->Close(kPatience).ok());
}

TEST_F(SessionProcessesTest, ASecondSessionFindsTheContentWhereItIs) {
  const std::vector<float> values(kLargeBytes / sizeof(float), 0.5f);
  std::string worker;
  {
    const auto session = Open();
    const auto device = *session->Device(0);
    const StoragePtr x = Upload(*device, values);
    EXPECT_EQ(*Read(*device, x), values);
    EXPECT_EQ(session->statistics().uploads_sent, 1u);
    worker = device->Placement()->worker_id;
    EXPECT_TRUE(session->Close(kPatience).ok());
  }
  // The coordinator learns of the content from the worker's next report.
  const AdminClient admin(cluster_->coordinator_address(),
                          cluster_->admin_token_file());
  ASSERT_TRUE(Eventually(
      [&] { return admin.Worker(worker).content_cache().entries() > 0; }));
  for (int i = 0; i < 3; ++i) {
    const auto session = Open();
    const auto device = *session->Device(0);
    const StoragePtr x = Upload(*device, values);
    EXPECT_EQ(device->Placement()->worker_id, worker)
        << device->Placement()->reason;
    EXPECT_EQ(session->statistics().uploads_already_held, 1u);
    EXPECT_LT(session->statistics().bytes_up, kLargeBytes / 50);
    EXPECT_EQ(*Read(*device, x), values);
  }
}

// Returns the number of the worker's complete files. Drafts have other names.
size_t FilesOnDisk(const ClusterProcesses& cluster, size_t worker) {
  const std::filesystem::path folder =
      std::filesystem::path(cluster.worker_socket(worker)).parent_path() /
      absl::StrCat("worker-", worker, ".contents");
  size_t files = 0;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    files += entry.is_regular_file() && name != "lock" &&
             !absl::EndsWith(name, ".part");
  }
  return files;
}

TEST_F(SessionProcessesTest, ARestartedWorkerReadsContentsFromItsDisk) {
  Start(/*workers=*/1);
  const std::vector<float> values(kLargeBytes / sizeof(float), 0.25f);
  {
    const auto session = Open();
    const auto device = *session->Device(0);
    const StoragePtr x = Upload(*device, values);
    EXPECT_EQ(session->statistics().uploads_sent, 1u);
    ASSERT_TRUE(Eventually([&] { return FilesOnDisk(*cluster_, 0) > 0; }));
    EXPECT_TRUE(session->Close(kPatience).ok());
  }
  // Kills the worker instead of asking it to stop.
  ASSERT_EQ(cluster_->RestartWorker(0), absl::OkStatus());
  const auto bytes = Floats(values);
  bool uploaded = false;
  // Until the coordinator has noticed, it leads sessions to the killed worker.
  for (int i = 0; i < 100 && !uploaded; ++i) {
    const auto session = Open();
    const auto device = *session->Device(0);
    const StoragePtr x = device->NewStorage(bytes->size());
    uploaded = device->Upload(0, x.get(), {*bytes, bytes}).ok();
    if (!uploaded) continue;
    EXPECT_EQ(session->statistics().uploads_already_held, 1u);
    EXPECT_LT(session->statistics().bytes_up, kLargeBytes / 100);
    EXPECT_EQ(*Read(*device, x), values);
  }
  EXPECT_TRUE(uploaded);
}

TEST_F(SessionProcessesTest, NoWeightMovesAgainToAWorkerThatRestartsInPlace) {
  Start(/*workers=*/1);
  SessionOptions options;
  options.recovers = true;
  const auto session = Open(options);
  const auto device = *session->Device(0);
  // Large and small weights: hash-first and eager uploads.
  std::vector<std::vector<float>> values;
  std::vector<StoragePtr> weights;
  uint64_t bytes = 0;
  for (size_t i = 0; i < 12; ++i) {
    const uint64_t size = i < 2 ? kLargeBytes : 256 << 10;
    values.emplace_back(size / sizeof(float), static_cast<float>(i));
    weights.push_back(Upload(*device, values.back()));
    bytes += size;
  }
  const auto sum = Apply(*device, "fake::add", weights[3]);
  ASSERT_TRUE(sum.ok());
  const auto before = Read(*device, *sum);
  ASSERT_TRUE(before.ok()) << before.status();
  ASSERT_TRUE(Eventually([&] {
    return FilesOnDisk(*cluster_, 0) == weights.size();
  })) << FilesOnDisk(*cluster_, 0);
  const Statistics first = session->statistics();
  ASSERT_EQ(kill(cluster_->worker_pids()[0], SIGKILL), 0);
  const absl::Status restarted = cluster_->RestartWorker(0);
  ASSERT_TRUE(restarted.ok()) << restarted;
  const auto after = Read(*device, *sum);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(*after, *before);
  for (size_t i = 0; i < weights.size(); ++i) {
    EXPECT_EQ(*Read(*device, weights[i]), values[i]);
  }
  const Statistics second = session->statistics();
  EXPECT_EQ(second.recoveries, 1u);
  EXPECT_EQ(second.uploads_sent, first.uploads_sent);
  EXPECT_LT(second.bytes_up - first.bytes_up, bytes / 100);
  EXPECT_TRUE(session->Close(kPatience).ok());
}

TEST_F(SessionProcessesTest, TwoDevicesUseTwoWorkers) {
  const auto session = Open();
  const auto first = (*session->Device(0))->Placement();
  const auto second = (*session->Device(1))->Placement();
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->worker_id, second->worker_id);
}

TEST_F(SessionProcessesTest, AnUploadWithoutRoomIsRefusedWithItsNumbers) {
  const auto session = Open();
  const auto device = *session->Device(0);
  const StoragePtr x = Upload(*device, {1});
  ASSERT_TRUE(Read(*device, x).ok());
  const std::vector<float> values((300 << 20) / sizeof(float));
  const auto bytes = Floats(values);
  const StoragePtr storage = device->NewStorage(bytes->size());
  const absl::Status status = device->Upload(0, storage.get(), {*bytes, bytes});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(status.message().find(absl::StrCat(bytes->size())),
            std::string::npos)
      << status;
  EXPECT_EQ(*Read(*device, x), std::vector<float>{1});
}

TEST_F(SessionProcessesTest, AKilledWorkerIsNamedAndANewSessionWorks) {
  auto session = Open();
  auto device = *session->Device(0);
  const StoragePtr x = Upload(*device, {1, 2, 3});
  EXPECT_TRUE(Read(*device, x).ok());
  const std::string worker = device->Placement()->worker_id;
  const int index = worker.back() - '0';
  ASSERT_EQ(kill(cluster_->worker_pids().at(index), SIGKILL), 0);
  const absl::Status lost = Read(*device, x).status();
  EXPECT_EQ(ErrorReason(lost), "WORKER_LOST") << lost;
  EXPECT_NE(lost.message().find(worker), std::string::npos) << lost;
  EXPECT_EQ(ErrorReason(Apply(*device, "fake::add", x).status()),
            "WORKER_LOST");
  (void)session->Close(kPatience);

  session = Open();
  device = *session->Device(0);
  const StoragePtr y = Upload(*device, {1, 2, 3});
  EXPECT_EQ(*Read(*device, y), (std::vector<float>{1, 2, 3}));
  EXPECT_NE(device->Placement()->worker_id, worker);
}

TEST_F(SessionProcessesTest, WorkGoesOnWithoutTheCoordinator) {
  const auto session = Open();
  const auto device = *session->Device(0);
  const StoragePtr x = Upload(*device, {1, 2, 3});
  EXPECT_TRUE(Read(*device, x).ok());
  ASSERT_EQ(kill(cluster_->coordinator_pid(), SIGKILL), 0);
  auto y = Apply(*device, "fake::add", x);
  EXPECT_EQ(*Read(*device, *y), (std::vector<float>{2, 3, 4}));

  ASSERT_EQ(cluster_->RestartCoordinator(), absl::OkStatus());
  y = Apply(*device, "fake::add", *y);
  EXPECT_EQ(*Read(*device, *y), (std::vector<float>{3, 4, 5}));
  // The same session gets further leases from the new coordinator.
  const auto placement = (*session->Device(1))->Placement();
  EXPECT_TRUE(placement.ok()) << placement.status();
  EXPECT_EQ(*Read(*device, x), (std::vector<float>{1, 2, 3}));
  EXPECT_TRUE(session->RootErrors().empty());
  EXPECT_TRUE(session->Close(kPatience).ok());
}

TEST_F(SessionProcessesTest, AWrongTokenIsRefused) {
  EXPECT_EQ(ErrorReason(TryOpen("0123").status()), "TOKEN_UNKNOWN");
}

TEST_F(SessionProcessesTest, StoppingLeavesNothing) {
  std::vector<pid_t> pids = cluster_->worker_pids();
  pids.push_back(cluster_->coordinator_pid());
  const std::string token_file = cluster_->token_file();
  cluster_->Stop();
  for (const pid_t pid : pids) EXPECT_TRUE(IsGone(pid));
  EXPECT_NE(access(token_file.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace djinn
