// Tests multi-worker devices with real processes: virtual devices that need
// more room than one worker has.
#include <signal.h>

#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
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
constexpr int64_t kCount = 1 << 18;  // floats of a weight: 1 MiB

class MultiWorkerTest : public testing::Test {
 protected:
  MultiWorkerTest() {
    ClusterOptions options;
    options.workers = 3;
    options.device_kind = "fake";
    options.worker_memory_bytes = 8 << 20;
    cluster_ = ClusterProcesses::Start(options).value();
    std::ifstream file(cluster_->token_file());
    std::string token;
    file >> token;
    SessionOptions session;
    session.connect_timeout = session.operation_timeout = kPatience;
    session.resume_timeout = absl::Seconds(2);
    session_ = OpenSession(session,
                           *MakeGrpcCoordinatorLink(
                               cluster_->coordinator_address(), token),
                           MakeGrpcWorkerConnector())
                   .value();
    device_ = *session_->Device(0);
  }

  absl::Status Upload(float value, StoragePtr* storage) {
    const std::vector<float> values(kCount, value);
    auto bytes = std::make_shared<std::string>(
        reinterpret_cast<const char*>(values.data()),
        values.size() * sizeof(float));
    *storage = device_->NewStorage(bytes->size());
    return device_->Upload(0, storage->get(), {*bytes, bytes});
  }
  std::vector<StoragePtr> Weights(int count) {
    std::vector<StoragePtr> weights(count);
    for (int i = 0; i < count; ++i) {
      const absl::Status status = Upload(static_cast<float>(i), &weights[i]);
      EXPECT_TRUE(status.ok()) << i << ": " << status;
    }
    return weights;
  }
  // Returns the storage's first `count` floats.
  absl::StatusOr<std::vector<float>> Read(const StoragePtr& storage,
                                          int64_t count) {
    std::vector<float> values(count);
    const absl::Status status =
        device_->Read(0, storage.get(), FloatView(count), values.data(),
                      count * sizeof(float));
    if (!status.ok()) return status;
    return values;
  }
  StoragePtr Add(const StoragePtr& x, const StoragePtr& y, int64_t count) {
    StoragePtr sum = device_->NewStorage(count * sizeof(float));
    FakeCall call("fake::add");
    call.Tensor(x.get(), count).Tensor(y.get(), count).Result(sum.get(), count);
    EXPECT_EQ(device_->Record(0, call.get()), absl::OkStatus());
    return sum;
  }
  std::set<std::string> Workers() {
    const auto placement = device_->Placement();
    EXPECT_TRUE(placement.ok()) << placement.status();
    return absl::StrSplit(placement->worker_id, '+');
  }
  size_t IndexOf(const std::string& worker) { return worker.back() - '0'; }

  std::unique_ptr<ClusterProcesses> cluster_;
  std::unique_ptr<Session> session_;
  std::shared_ptr<VirtualDevice> device_;
};

TEST_F(MultiWorkerTest, AModelIsLargerThanAWorker) {
  // 18 MiB need three workers of 8 MiB.
  const std::vector<StoragePtr> weights = Weights(18);
  EXPECT_EQ(Workers().size(), 3u);
  for (int round = 0; round < 3; ++round) {
    StoragePtr value = weights[0];
    for (size_t i = 1; i < weights.size(); ++i) {
      StoragePtr next = Add(value, weights[i], 1000);
      if (i > 1) device_->MarkDead(value.get());
      value = std::move(next);
    }
    const auto sum = Read(value, 1000);
    ASSERT_TRUE(sum.ok()) << sum.status();
    EXPECT_EQ(*sum, std::vector<float>(1000, 17 * 18 / 2));
    device_->MarkDead(value.get());
  }
  // The weights moved to the workers once; only values crossed between them.
  EXPECT_LT(session_->statistics().device_copies, 30u);
  EXPECT_EQ(session_->statistics().reads, 3u);

  const AdminClient admin(cluster_->coordinator_address(),
                          cluster_->admin_token_file());
  v1::ListLeasesResponse leases;
  ASSERT_TRUE(admin.Call(&v1::Admin::Stub::ListLeases, v1::ListLeasesRequest(),
                         &leases));
  std::set<uint32_t> members;
  for (const v1::LeaseInfo& lease : leases.leases()) {
    EXPECT_EQ(lease.virtual_device(), 0u);
    members.insert(lease.member());
  }
  EXPECT_EQ(members, (std::set<uint32_t>{0, 1, 2}));
  EXPECT_EQ(session_->Close(kPatience), absl::OkStatus());
}

TEST_F(MultiWorkerTest, ResultsAreLargerThanAWorker) {
  StoragePtr one;
  ASSERT_TRUE(Upload(1, &one).ok());
  std::vector<StoragePtr> sums = {Add(one, one, kCount)};
  while (sums.size() < 16) sums.push_back(Add(sums.back(), one, kCount));
  EXPECT_GT(Workers().size(), 1u);
  for (size_t i = 0; i < sums.size(); ++i) {
    const auto sum = Read(sums[i], kCount);
    ASSERT_TRUE(sum.ok()) << sum.status();
    EXPECT_EQ((*sum)[kCount - 1], static_cast<float>(i + 2));
  }
  EXPECT_EQ(session_->Close(kPatience), absl::OkStatus());
}

TEST_F(MultiWorkerTest, WhenAllAreFullTheProgramIsToldSo) {
  std::vector<StoragePtr> weights;
  absl::Status status;
  while (status.ok() && weights.size() < 100) {
    StoragePtr weight;
    status = Upload(static_cast<float>(weights.size()), &weight);
    if (status.ok()) weights.push_back(weight);
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_GE(weights.size(), 18u);
  EXPECT_EQ(Workers().size(), 3u);
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto value = Read(weights[i], 1);
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ((*value)[0], static_cast<float>(i));
  }
  // Releasing a weight makes room again.
  device_->MarkDead(weights[0].get());
  StoragePtr more;
  EXPECT_EQ(Upload(5, &more), absl::OkStatus());
}

TEST_F(MultiWorkerTest, ALostWorkerIsTheLossOfTheDevice) {
  const std::vector<StoragePtr> weights = Weights(18);
  const std::string victim = *Workers().rbegin();
  ASSERT_EQ(kill(cluster_->worker_pids().at(IndexOf(victim)), SIGKILL), 0);
  // Every wait ends.
  absl::Status lost;
  for (int round = 0; round < 1000 && lost.ok(); ++round) {
    for (const StoragePtr& weight : weights) {
      lost.Update(Read(weight, 1).status());
    }
  }
  EXPECT_EQ(ErrorReason(lost), "WORKER_LOST") << lost;
  for (const StoragePtr& weight : weights) {
    EXPECT_EQ(ErrorReason(Read(weight, 1).status()), "WORKER_LOST");
  }
  (void)session_->Close(kPatience);
}

}  // namespace
}  // namespace djinn
