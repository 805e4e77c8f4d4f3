// Compares the cost that a program reads with the cost that its tenant is
// billed.
//
// Links the client library's parts instead of the shared library, as
// failures_test does.
#include <ATen/ATen.h>

#include <memory>
#include <utility>
#include <vector>

#include "client_lib/cluster/embedded_cluster.h"
#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "djinn/djinn.h"
#include "djinn/v1/admin.pb.h"
#include "djinn/v1/lease.pb.h"
#include "djinn/v1/usage.pb.h"
#include "gtest/gtest.h"
#include "tests/e2e/admin_client.h"
#include "tests/e2e/eventually.h"

namespace djinn {
namespace {

constexpr int64_t kWidth = 384;

class CostTest : public testing::Test {
 protected:
  CostTest() {
    ClusterOptions options;
    options.workers = 2;
    options.worker_memory_bytes = uint64_t{512} << 20;
    options.worker_threads = 1;
    cluster_ = *ClusterProcesses::Start(std::move(options));
    admin_ = std::make_unique<AdminClient>(cluster_->coordinator_address(),
                                           cluster_->admin_token_file());
    ConnectOptions connect;
    connect.coordinator = cluster_->coordinator_address();
    connect.token_file = cluster_->token_file();
    EXPECT_TRUE(Connect(connect).ok());
  }
  ~CostTest() override { (void)Close(); }

  std::unique_ptr<ClusterProcesses> cluster_;
  std::unique_ptr<AdminClient> admin_;
};

TEST_F(CostTest, RequestsAddUpToWhatTheTenantIsBilled) {
  const at::Tensor weight = at::randn({kWidth, kWidth}).mul_(0.03);
  CostScope all;
  CostScope upload;
  const at::Tensor remote = weight.to(Device());
  const absl::StatusOr<Cost> uploaded = upload.Get();
  ASSERT_TRUE(uploaded.ok()) << uploaded.status();
  EXPECT_GE(uploaded->bytes_up, weight.nbytes());
  Cost sum = *uploaded;
  for (int request = 0; request < 20; ++request) {
    CostScope scope;
    at::Tensor x = remote;
    for (int i = 0; i < 20; ++i) x = at::mm(x, remote);
    x.sum().item<float>();
    const absl::StatusOr<Cost> cost = scope.Get();
    ASSERT_TRUE(cost.ok()) << cost.status();
    EXPECT_GT(cost->device_time, absl::ZeroDuration());
    EXPECT_GT(cost->runs, 0u);
    EXPECT_LT(cost->bytes_down, 4096u);
    sum.device_time += cost->device_time;
    sum.bytes_up += cost->bytes_up;
    sum.bytes_down += cost->bytes_down;
  }
  const absl::StatusOr<Cost> everything = all.Get();
  ASSERT_TRUE(everything.ok()) << everything.status();
  // The total also contains the messages between the requests: the scopes'
  // requests, and the answers to graphs.
  EXPECT_GE(everything->device_time, sum.device_time);
  EXPECT_GE(everything->bytes_up + everything->bytes_down,
            sum.bytes_up + sum.bytes_down);
  EXPECT_GT(absl::FDivDuration(sum.device_time, everything->device_time), 0.9);
  ASSERT_TRUE(Close().ok());

  // The session did little before its first question and after its last.
  v1::LeaseUse billed;
  EXPECT_TRUE(Eventually([&] {
    const v1::TenantInfo tenant = admin_->Tenant("local");
    billed = tenant.credits().used();
    return tenant.lease_count() == 0 &&
           FromProtoDuration(billed.device_time()) >= everything->device_time;
  }));
  const uint64_t bytes = everything->bytes_up + everything->bytes_down;
  EXPECT_GE(billed.bytes(), bytes);
  EXPECT_LE(billed.bytes(), bytes + bytes / 1000);
  EXPECT_GT(absl::FDivDuration(everything->device_time,
                               FromProtoDuration(billed.device_time())),
            0.9);
}

TEST_F(CostTest, ASessionOpenedInItCountsFromNothing) {
  ASSERT_TRUE(Close().ok());
  CostScope scope;
  ConnectOptions connect;
  connect.coordinator = cluster_->coordinator_address();
  connect.token_file = cluster_->token_file();
  ASSERT_TRUE(Connect(connect).ok());
  at::ones({4}).to(Device()).add(1).cpu();
  EXPECT_EQ(scope.Get()->runs, 1u);
  CostScope other;
  ASSERT_TRUE(Close().ok());
  EXPECT_EQ(ErrorReason(other.Get().status()), "SESSION_CLOSED");
}

TEST_F(CostTest, AWishForAPolicyIsHeard) {
  ASSERT_TRUE(Close().ok());
  ConnectOptions connect;
  connect.coordinator = cluster_->coordinator_address();
  connect.token_file = cluster_->token_file();
  connect.placement_policy = "best";
  EXPECT_EQ(ErrorReason(Connect(connect)), "POLICY_UNKNOWN");
  connect.placement_policy = "load_balance";
  connect.device_placement_policies = {{1, "minimize_cost"}, {2, "worst"}};
  connect.program = "policies";
  ASSERT_TRUE(Connect(connect).ok());
  ASSERT_TRUE(WhereIs(0).ok());
  ASSERT_TRUE(WhereIs(1).ok());
  EXPECT_EQ(ErrorReason(WhereIs(2).status()), "POLICY_UNKNOWN");
  v1::ExplainSessionRequest request;
  request.set_session_id(admin_->SessionOf("policies").session_id());
  v1::SessionExplanation explanation;
  ASSERT_TRUE(
      admin_->Call(&v1::Admin::Stub::ExplainSession, request, &explanation));
  EXPECT_EQ(explanation.policy(), "load_balance");
  EXPECT_EQ(explanation.policy_source(), "session");
  ASSERT_EQ(explanation.devices_size(), 2);
  EXPECT_EQ(explanation.devices(0).decision().policy_source(), "session");
  EXPECT_EQ(explanation.devices(1).decision().policy(), "minimize_cost");
  EXPECT_EQ(explanation.devices(1).decision().policy_source(), "request");
}

TEST_F(CostTest, OperatorsSeeACallableUnderItsName) {
  const at::Tensor weight = at::randn({kWidth, kWidth}).to(Device());
  CompiledFunction product(
      [&](const std::vector<at::Tensor>& x) {
        return std::vector<at::Tensor>{at::mm(x[0], weight)};
      },
      {.parameters = {weight}, .name = "product"});
  for (int call = 0; call < 6; ++call) {
    product({at::randn({1, kWidth}).to(Device())})[0].cpu();
  }
  ASSERT_GT(product.statistics().replays, 0u);
  v1::ModelUse model;
  EXPECT_TRUE(Eventually([&] {
    v1::ListSessionsResponse sessions;
    if (admin_->Call(&v1::Admin::Stub::ListSessions, v1::ListSessionsRequest(),
                     &sessions) &&
        sessions.sessions_size() == 1 &&
        sessions.sessions(0).use().models_size() == 1) {
      model = sessions.sessions(0).use().models(0);
    }
    return model.size_bytes() > 0;
  }));
  EXPECT_EQ(model.name(), "product");
  EXPECT_EQ(model.size_bytes(), weight.nbytes());
}

}  // namespace
}  // namespace djinn
