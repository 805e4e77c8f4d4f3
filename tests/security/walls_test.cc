// Tests that tenants are walled off from each other: two tenants on one worker
// with `isolation.mode: process`, one of which attacks with raw messages.
#include "tests/security/walls.h"

#include <signal.h>

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
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/wire_client.h"
#include "tests/e2e/wire_messages.h"

namespace djinn {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);

// A client after its hello: storage 1 holds Values() at version 1; graph 1 is
// Add() and has run once, into storage 2 at version 1.
class Client {
 public:
  Client(const Walls& walls, const std::string& tenant)
      : session_(walls.coordinator(), Walls::TokenOf(tenant)),
        control_(session_.OpenControl()) {
    v1::ControlRequest request;
    *request.mutable_hello() = session_.Hello();
    control_->Send(request);
    EXPECT_TRUE(
        control_
            ->Wait([](const v1::ControlResponse& r) { return r.has_hello(); })
            .has_value())
        << control_->WaitEnd();
    Send(Install(1, 0, Values()));
    Send(Define(1, Add()));
    Send(RunOf(1, 1, 1, 2));
    EXPECT_EQ(ValueOf(2, 1), FloatBytes({2, 4, 6, 8}));
  }

  WireSession& session() { return session_; }
  ControlStream& control() { return *control_; }
  std::string address() const { return session_.lease().worker_address(); }

  uint64_t Send(v1::Ordered message) {
    message.set_sequence(++sequence_);
    v1::ControlRequest request;
    *request.mutable_ordered() = std::move(message);
    control_->Send(request);
    return sequence_;
  }
  std::string ValueOf(uint64_t storage, uint64_t version) {
    const uint64_t sequence = Send(Read(storage, version));
    const auto reply = control_->Wait([&](const v1::ControlResponse& r) {
      return r.has_read() && r.read().sequence() == sequence;
    });
    if (!reply.has_value()) return control_->WaitEnd().ToString();
    return reply->read().has_error() ? reply->read().ShortDebugString()
                                     : reply->read().value();
  }
  // Returns whether the session computes as before.
  bool Works() {
    const uint64_t storage = ++last_storage_;
    Send(RunOf(1, 1, 1, storage));
    return ValueOf(1, 1) == Values() &&
           ValueOf(2, 1) == FloatBytes({2, 4, 6, 8}) &&
           ValueOf(storage, 1) == FloatBytes({2, 4, 6, 8});
  }
  // Runs the graph on storage 1 as the graph's first slot, and waits for its
  // end. Returns the error in the answer, or the end of the stream.
  std::string Attack(v1::Graph graph) {
    const uint64_t id = ++last_graph_;
    const uint64_t storage = ++last_storage_;
    Send(Define(id, std::move(graph)));
    Send(RunOf(id, 1, 1, storage));
    return ValueOf(storage, 1);
  }

 private:
  WireSession session_;
  const std::unique_ptr<ControlStream> control_;
  uint64_t sequence_ = 0;
  uint64_t last_storage_ = 100;
  uint64_t last_graph_ = 100;
};

v1::Argument Integer(int64_t value) {
  v1::Argument argument;
  argument.set_integer(value);
  return argument;
}
v1::Argument Integers(const std::vector<int64_t>& values) {
  v1::Argument argument;
  argument.mutable_integers();
  for (const int64_t value : values) {
    argument.mutable_integers()->add_values(value);
  }
  return argument;
}

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
    victim_ = new Client(*walls_, "victim");
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
  static inline Client* victim_ = nullptr;
};

TEST_F(WallsTest, EachTenantHasASandboxedProcessOfItsOwn) {
  Client attacker(*walls_, "attacker");
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
  Client attacker(*walls_, "attacker");
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
  Client attacker(*walls_, "attacker");
  const pid_t pid = walls_->PidAt(attacker.address());
  ASSERT_GT(pid, 0);
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  EXPECT_EQ(attacker.session().WaitLeaseEnd(), "EXECUTOR_LOST");
  EXPECT_FALSE(attacker.control().WaitEnd().ok());
  EXPECT_TRUE(victim_->Works());
  // The next lease has another executor.
  Client again(*walls_, "attacker");
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
    const absl::Status status =
        (*device)->Read(0, storage.get(), view, read.data(), read.size());
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(read, *bytes);
    EXPECT_TRUE((*session)->Close(kPatience).ok());
  }
}

TEST_F(WallsTest, NodeThatDoesNotEndHoldsUpNobodyAndIsEnded) {
  Client attacker(*walls_, "attacker");
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
    Client attacker(*walls_, "attacker");
    answer = attacker.Attack(GetParam().graph());
    // The lease ends with its executor. The next one names another executor.
    if (attacker.control().ended()) {
      EXPECT_EQ(attacker.session().WaitLeaseEnd(), "EXECUTOR_LOST");
    }
  }
  // Either an error of the operator, or the end of the attacker's executor.
  // Whichever it is, the tenant may go on.
  EXPECT_NE(answer.size(), Values().size()) << "no error";
  EXPECT_TRUE(Client(*walls_, "attacker").Works());
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
  Client client(walls, "victim");
  const pid_t executor = walls.PidAt(client.address());
  ASSERT_GT(executor, 0);
  walls.worker().Signal(SIGKILL);
  EXPECT_TRUE(Eventually([&] { return kill(executor, 0) != 0; }));
}

TEST(WallsProcessTest, StoppedWorkerTellsClientsThatItDrains) {
  Walls walls("{mode: process, executors: 2}");
  Client client(walls, "victim");
  walls.worker().Signal(SIGTERM);
  const absl::Status end = client.control().WaitEnd();
  EXPECT_EQ(ErrorReason(end), "DRAINING") << end;
  EXPECT_TRUE(walls.worker().WaitForExit(kPatience));
}

TEST(WallsProcessTest, SharedWorkerNamesItsOwnAddress) {
  Walls walls("{mode: shared}");
  Client attacker(walls, "attacker");
  Client victim(walls, "victim");
  EXPECT_EQ(attacker.address(), victim.address());
  EXPECT_TRUE(victim.Works());
}

}  // namespace
}  // namespace djinn
