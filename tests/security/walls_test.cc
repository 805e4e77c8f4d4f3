// Tests that tenants are walled off from each other: two tenants on one worker
// with `isolation.mode: process`, one of which attacks with raw messages.
#include "tests/security/walls.h"

#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/session/remote_session.h"
#include "client_lib/transport/grpc_coordinator_link.h"
#include "client_lib/transport/grpc_worker_connector.h"
#include "client_lib/transport/shared_memory_connector.h"
#include "common/base/error.h"
#include "common/net/raw_connection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/wire_client.h"
#include "tests/e2e/wire_messages.h"
#include "tests/security/raw_client.h"

namespace djinn {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);

// r = op(x, ...), where x has two complex elements.
v1::Graph Fft(const std::string& name, std::vector<v1::Argument> rest) {
  v1::Graph graph = CallOf(Op(name));
  v1::Node* const node = graph.mutable_nodes(0);
  node->clear_arguments();
  v1::TensorView x = View(0, {2}, {1});
  x.set_data_type(v1::DATA_TYPE_COMPLEX64);
  *node->add_arguments()->mutable_tensor() = x;
  for (v1::Argument& argument : rest) {
    *node->add_arguments() = std::move(argument);
  }
  return graph;
}

class WallsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    walls_ = new Walls("{mode: process, executors: 3, node_limit: 5s}");
    victim_ = new RawClient(*walls_, "victim");
  }
  static void TearDownTestSuite() {
    delete victim_;
    delete walls_;
  }
  // The other tenant and the worker never notice an attack.
  void TearDown() override {
    EXPECT_TRUE(victim_->Works());
    EXPECT_FALSE(victim_->control().ended());
    EXPECT_TRUE(walls_->worker().Running());
    EXPECT_TRUE(Eventually(
        [] { return walls_->Info().state() == v1::WorkerInfo::ACTIVE; }));
  }

  static inline Walls* walls_ = nullptr;
  static inline RawClient* victim_ = nullptr;
};

TEST_F(WallsTest, EachTenantHasASandboxedProcessOfItsOwn) {
  RawClient attacker(*walls_, "attacker");
  EXPECT_NE(attacker.address(), victim_->address());
  const pid_t theirs = walls_->PidAt(attacker.address());
  const pid_t ours = walls_->PidAt(victim_->address());
  ASSERT_GT(theirs, 0);
  ASSERT_GT(ours, 0);
  EXPECT_NE(theirs, ours);
  const std::string status = ReadAll(absl::StrCat("/proc/", theirs, "/status"));
  EXPECT_THAT(status, HasSubstr("NoNewPrivs:\t1"));
  EXPECT_THAT(status, HasSubstr("Seccomp:\t2"));
}

TEST_F(WallsTest, LeaseOfOneTenantIsNotHonouredByTheOthersExecutor) {
  RawClient attacker(*walls_, "attacker");
  const auto stub =
      v1::Execution::NewStub(MakeChannel(victim_->address()).value());
  ControlStream control(
      [&](grpc::ClientContext* context) { return stub->Control(context); });
  v1::ControlRequest request;
  *request.mutable_hello() = attacker.session().Hello();
  control.Send(request);
  const absl::Status end = control.WaitEnd();
  EXPECT_EQ(end.code(), absl::StatusCode::kUnauthenticated) << end;
  EXPECT_EQ(ErrorReason(end), "LEASE_UNKNOWN");
  EXPECT_TRUE(attacker.Works());
}

TEST_F(WallsTest, KilledExecutorEndsOnlyItsTenantsLeases) {
  RawClient attacker(*walls_, "attacker");
  const pid_t pid = walls_->PidAt(attacker.address());
  ASSERT_GT(pid, 0);
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  EXPECT_EQ(attacker.session().WaitLeaseEnd(), "EXECUTOR_LOST");
  EXPECT_FALSE(attacker.control().WaitEnd().ok());
  EXPECT_TRUE(victim_->Works());
  // The next lease has another executor.
  RawClient again(*walls_, "attacker");
  EXPECT_NE(walls_->PidAt(again.address()), pid);
  EXPECT_TRUE(again.Works());
}

TEST_F(WallsTest, ClientLibraryUsesTheExecutorOverBothTransports) {
  for (const bool shared_memory : {false, true}) {
    SessionOptions options;
    options.connect_timeout = kPatience;
    options.operation_timeout = kPatience;
    options.program = "walls_test";
    std::unique_ptr<WorkerConnector> connector = MakeGrpcWorkerConnector();
    if (shared_memory) {
      connector = MakeSharedMemoryConnector(std::move(connector));
    }
    auto session =
        OpenSession(options,
                    MakeGrpcCoordinatorLink(walls_->coordinator(),
                                            Walls::TokenOf("attacker"))
                        .value(),
                    std::move(connector));
    ASSERT_TRUE(session.ok()) << session.status();
    const auto device = (*session)->Device(0);
    ASSERT_TRUE(device.ok()) << device.status();
    const auto bytes = std::make_shared<std::string>(3 << 20, 'v');
    const StoragePtr storage = (*device)->NewStorage(bytes->size());
    ASSERT_TRUE((*device)->Upload(0, storage.get(), {*bytes, bytes}).ok());
    srg::TensorView view;
    view.data_type = srg::DataType::kFloat32;
    view.sizes = {3 << 18};
    view.strides = {1};
    std::string read(bytes->size(), '\0');
    EXPECT_EQ((*device)->Read(0, storage.get(), view, read.data(), read.size()),
              absl::OkStatus());
    EXPECT_EQ(read, *bytes);
    EXPECT_TRUE((*session)->Close(kPatience).ok());
  }
}

TEST_F(WallsTest, SilentConnectionsToAnExecutorHoldUpNoSession) {
  // More than the gate keeps, so that it closes the oldest.
  constexpr rlim_t kSilent = 1100;
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = std::max(limit.rlim_cur, 2 * kSilent);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<Socket> silent;
  for (rlim_t i = 0; i < kSilent; ++i) {
    silent.push_back(ConnectTo(victim_->address()));
    ASSERT_GE(silent.back().fd(), 0);
  }
  EXPECT_TRUE(RawClient(*walls_, "victim").Works());
  // The executor has closed it, and says nothing.
  EXPECT_EQ(ReadAll(silent.front()), "");
}

TEST_F(WallsTest, NodeThatDoesNotEndHoldsUpNobodyAndIsEnded) {
  RawClient attacker(*walls_, "attacker");
  // A norm over one float that is repeated 2^33 times.
  v1::Graph graph = CallOf(Op("aten::linalg_vector_norm"));
  v1::Node* const node = graph.mutable_nodes(0);
  node->clear_arguments();
  *node->add_arguments()->mutable_tensor() = View(0, {int64_t{1} << 33}, {0});
  *node->add_arguments() = Integer(3);
  node->add_arguments()->set_none(true);
  node->add_arguments()->set_boolean(false);
  node->add_arguments()->set_none(true);
  *node->mutable_results(0)->mutable_view() = View(1, {}, {});
  attacker.Send(Define(2, std::move(graph)));
  attacker.Send(RunOf(2, 1, 1, 3));
  EXPECT_TRUE(victim_->Works());
  EXPECT_EQ(attacker.session().WaitLeaseEnd(), "NODE_LIMIT");
}

// An attack that used to end the worker, or still ends a process.
struct Attack {
  const char* name;
  std::function<v1::Graph()> graph;
};

class WallsAttackTest : public WallsTest,
                        public testing::WithParamInterface<Attack> {};

TEST_P(WallsAttackTest, HurtsOnlyTheAttacker) {
  std::string answer;
  {
    RawClient attacker(*walls_, "attacker");
    answer = attacker.Attack(GetParam().graph());
    // The lease ends with its executor. The next one names another executor.
    if (attacker.control().ended()) {
      EXPECT_EQ(attacker.session().WaitLeaseEnd(), "EXECUTOR_LOST_IN_TURN");
    }
  }
  // Either an error of the operator, or the end of the attacker's executor.
  // Whichever it is, the tenant may go on.
  EXPECT_NE(answer.size(), Values().size()) << "no error";
  EXPECT_TRUE(RawClient(*walls_, "attacker").Works());
}

constexpr int64_t kFar = int64_t{1} << 30;

// Counts weights that are used, at indices that are the bits of floats. Only
// autograd calls this operator, and no guard looks at its indices.
v1::Graph EmbeddingBackward() {
  v1::Graph graph = CallOf(Op("aten::embedding_dense_backward"));
  v1::Node* const node = graph.mutable_nodes(0);
  node->clear_arguments();
  *node->add_arguments()->mutable_tensor() = View(0, {2, 1}, {1, 1});
  v1::TensorView indices = View(0, {2}, {1});
  indices.set_data_type(v1::DATA_TYPE_INT64);
  *node->add_arguments()->mutable_tensor() = indices;
  *node->add_arguments() = Integer(5);
  *node->add_arguments() = Integer(-1);
  node->add_arguments()->set_boolean(true);
  *node->mutable_results(0)->mutable_view() = View(1, {5, 1}, {1, 1});
  return graph;
}

INSTANTIATE_TEST_SUITE_P(
    All, WallsAttackTest,
    testing::Values(Attack{"FftComplexToReal",
                           [] {
                             return Fft(
                                 "aten::_fft_c2r",
                                 {Integers({kFar}), Integer(0), Integer(4)});
                           }},
                    Attack{"FftComplexToComplex",
                           [] {
                             v1::Graph graph =
                                 Fft("aten::_fft_c2c",
                                     {Integers({kFar}), Integer(0)});
                             v1::Argument forward;
                             forward.set_boolean(true);
                             *graph.mutable_nodes(0)->add_arguments() = forward;
                             graph.mutable_nodes(0)
                                 ->mutable_results(0)
                                 ->mutable_view()
                                 ->set_data_type(v1::DATA_TYPE_COMPLEX64);
                             return graph;
                           }},
                    Attack{"EmbeddingBackward", EmbeddingBackward}),
    [](const testing::TestParamInfo<Attack>& info) {
      return std::string(info.param.name);
    });

TEST(WallsProcessTest, ExecutorsEndWithTheirSupervisor) {
  Walls walls("{mode: process, executors: 2}");
  RawClient client(walls, "victim");
  const pid_t executor = walls.PidAt(client.address());
  ASSERT_GT(executor, 0);
  walls.worker().Signal(SIGKILL);
  EXPECT_TRUE(Eventually([&] { return kill(executor, 0) != 0; }));
}

TEST(WallsProcessTest, StoppedWorkerTellsClientsThatItDrains) {
  Walls walls("{mode: process, executors: 2}");
  RawClient client(walls, "victim");
  walls.worker().Signal(SIGTERM);
  const absl::Status end = client.control().WaitEnd();
  EXPECT_EQ(ErrorReason(end), "DRAINING") << end;
  EXPECT_TRUE(walls.worker().WaitForExit(kPatience));
}

TEST(WallsProcessTest, SharedWorkerNamesItsOwnAddress) {
  Walls walls("{mode: shared}");
  RawClient attacker(walls, "attacker");
  RawClient victim(walls, "victim");
  EXPECT_EQ(attacker.address(), victim.address());
  EXPECT_TRUE(victim.Works());
}

}  // namespace
}  // namespace djinn
