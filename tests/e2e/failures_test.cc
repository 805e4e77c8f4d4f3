// Tests, through real processes, what a program sees when an operator, a
// process or a limit fails.
//
// Links the client library's parts instead of the shared library, because both
// would bring the same protos into one process.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client_lib/cluster/child_process.h"
#include "client_lib/cluster/embedded_cluster.h"
#include "common/base/error.h"
#include "djinn/djinn.h"
#include "djinn/v1/admin.pb.h"
#include "djinn/v1/notes.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/admin_client.h"
#include "tests/e2e/eventually.h"

namespace djinn {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kWorkerMemory = uint64_t{512} << 20;
constexpr absl::Duration kSessionTimeout = absl::Seconds(3);
// Bound for "at once" and "within seconds" on a busy machine.
constexpr absl::Duration kSoon = absl::Seconds(10);

ClusterOptions TwoWorkers() {
  ClusterOptions options;
  options.workers = 2;
  options.worker_memory_bytes = kWorkerMemory;
  options.worker_threads = 1;
  options.session_timeout = kSessionTimeout;
  options.worker_timeout = absl::Seconds(5);
  return options;
}

// Runs from before the first test until after the last.
class Environment : public testing::Environment {
 public:
  void SetUp() override {
    cluster_ = ClusterProcesses::Start(TwoWorkers()).value();
  }
  void TearDown() override { cluster_.reset(); }
  ClusterProcesses& cluster() { return *cluster_; }

 private:
  std::unique_ptr<ClusterProcesses> cluster_;
};
Environment* const environment = static_cast<Environment*>(
    testing::AddGlobalTestEnvironment(new Environment));

ConnectOptions OptionsFor(const ClusterProcesses& cluster) {
  ConnectOptions options;
  options.coordinator = cluster.coordinator_address();
  options.token_file = cluster.token_file();
  options.program = "failures_test";
  options.connect_timeout = absl::Seconds(20);
  options.operation_timeout = absl::Minutes(1);
  return options;
}

AdminClient AdminOf(const ClusterProcesses& cluster) {
  return AdminClient(cluster.coordinator_address(), cluster.admin_token_file());
}

// Returns the error that the call threw, if it is one of Djinn's.
template <typename Function>
std::optional<Error> Caught(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& other) {
    ADD_FAILURE() << "not djinn::Error: " << other.what();
  }
  return std::nullopt;
}

template <typename Function>
std::string ReasonOf(Function function) {
  const std::optional<Error> error = Caught(function);
  return error.has_value() ? error->reason() : "nothing thrown";
}

void ExpectValue(const at::Tensor& remote, const at::Tensor& expected) {
  EXPECT_TRUE(at::equal(remote.cpu(), expected)) << remote.cpu();
}

at::TensorOptions Remote(int index = 0) {
  return at::TensorOptions(at::kFloat).device(Device(index));
}

// Opens a session on the shared cluster for each test.
class FailuresTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(Connect(OptionsFor(cluster())), absl::OkStatus());
  }
  void TearDown() override { EXPECT_EQ(Close(), absl::OkStatus()); }
  static ClusterProcesses& cluster() { return environment->cluster(); }
};

// --- An operator fails.

TEST_F(FailuresTest, AnErrorAndTheGraphNameTheModule) {
  SetCallSites(true);
  const at::Tensor square = at::ones({2, 2}, Remote());
  at::Tensor bad;
  {
    const PhaseScope decoding(Phase::kLlmDecode);
    const ModuleScope net("Net"), layer("fc1");
    bad = at::index_select(square.log1p(), 0,
                           at::tensor({0, 9}).to(square.device()));
  }
  SetCallSites(false);
  const std::optional<Error> error = Caught([&] { bad.cpu(); });
  ASSERT_TRUE(error.has_value());
  EXPECT_THAT(error->what(), HasSubstr("aten::index_select"));
  EXPECT_THAT(error->what(), HasSubstr("in module Net.fc1"));
  const AdminClient admin = AdminOf(cluster());
  EXPECT_TRUE(Eventually([&] {
    for (const v1::GraphInfo& graph : admin.Graphs()) {
      for (const v1::GraphNode& node : graph.nodes()) {
        if (node.operator_name() == "aten::log1p") {
          return node.note().phase() == v1::PHASE_LLM_DECODE &&
                 node.note().module_path() == "Net.fc1";
        }
      }
    }
    return false;
  }));
}

struct FailingCall {
  std::string name;
  std::string operator_name;
  std::function<at::Tensor(const at::Tensor& square)> call;
};

void PrintTo(const FailingCall& call, std::ostream* out) { *out << call.name; }

class FailingCallTest : public FailuresTest,
                        public testing::WithParamInterface<FailingCall> {};

INSTANTIATE_TEST_SUITE_P(
    Calls, FailingCallTest,
    testing::Values(
        FailingCall{"IndexSelect", "aten::index_select",
                    [](const at::Tensor& x) {
                      return at::index_select(
                          x, 0, at::tensor({0, 9}).to(x.device()));
                    }},
        FailingCall{"Embedding", "aten::embedding",
                    [](const at::Tensor& x) {
                      return at::embedding(x,
                                           at::tensor({1, -7}).to(x.device()));
                    }},
        // Checks no code, unlike linalg.cholesky, but fails in the kernel.
        FailingCall{"Index", "aten::index",
                    [](const at::Tensor& x) {
                      return at::index(x, {at::tensor({3, -5}).to(x.device())});
                    }}),
    [](const auto& info) { return info.param.name; });

TEST_P(FailingCallTest, StaysWithWhatDependsOnIt) {
  struct Good {
    at::Tensor parameter, unrelated, before, after, dropped;
  };
  // Both devices get the same calls in the same order. On the remote device,
  // the failing call and the calls that need its result fail.
  at::Tensor bad, derived, patched, drawn;
  const auto program = [&](at::Device device) {
    at::manual_seed(7);
    const auto options = at::TensorOptions(at::kFloat).device(device);
    Good good;
    at::Tensor square =
        at::arange(16, at::TensorOptions(at::kFloat)).view({4, 4}).to(device);
    good.parameter = at::ones({4, 4}, options);
    good.parameter.add_(square, -0.125);
    good.before = at::rand({5}, options);
    if (device.type() != at::kCPU) {
      bad = GetParam().call(square);
      derived = (bad * 2).sum();
      patched = at::zeros({6, 4}, options);
      patched.slice(0, 0, bad.size(0)).copy_(bad);
      // Would draw random numbers if it could run.
      drawn = at::dropout(bad, 0.5, true);
    }
    good.unrelated = at::matmul(square, square.t());
    good.after = at::randn({7}, options);
    good.dropped = at::dropout(square, 0.5, true);
    good.parameter.mul_(0.5);
    return good;
  };
  // The CPU is first, because seeding seeds every device.
  const Good here = program(at::kCPU);
  const at::Tensor later = at::rand({3});
  const Good there = program(Device());

  const std::optional<Error> first = Caught([&] { derived.cpu(); });
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->reason(), "OPERATOR_FAILED") << first->status();
  EXPECT_NE(first->error_id(), "");
  const std::string text(first->status().message());
  EXPECT_THAT(text, HasSubstr(GetParam().operator_name));
  EXPECT_THAT(text, HasSubstr("float32[4,4]"));
  for (int round = 0; round < 2; ++round) {
    for (const at::Tensor& value : {bad, derived, patched, drawn}) {
      const std::optional<Error> error = Caught([&] { value.cpu(); });
      ASSERT_TRUE(error.has_value());
      EXPECT_EQ(error->error_id(), first->error_id());
      EXPECT_EQ(error->reason(), first->reason());
    }
    ExpectValue(there.parameter, here.parameter);
    ExpectValue(there.unrelated, here.unrelated);
    ExpectValue(there.before, here.before);
    ExpectValue(there.after, here.after);
    ExpectValue(there.dropped, here.dropped);
  }
  // The generators still agree after the error was seen.
  ExpectValue(at::rand({3}, Remote()), later);

  // A later failure that derives from a root error is not a new error.
  EXPECT_TRUE(Caught([&] { (derived + there.parameter).cpu(); }).has_value());
  const std::vector<absl::Status> roots = RootErrors();
  ASSERT_EQ(roots.size(), 1u);
  EXPECT_EQ(ErrorMetadataValue(roots[0], "error_id"), first->error_id());
  EXPECT_EQ(GetStatistics().root_errors, 1u);

  // A poisoned value stays poisoned after a partial write. A write of the whole
  // value clears the poison.
  patched.select(0, 5).fill_(1);
  EXPECT_TRUE(Caught([&] { patched.cpu(); }).has_value());
  patched.fill_(3);
  ExpectValue(patched, at::full({6, 4}, 3.f));
  bad.copy_(at::ones(bad.sizes()));
  ExpectValue(bad * 2, at::full(bad.sizes(), 2.f));
  derived.zero_();
  ExpectValue(derived, at::zeros({}));
  EXPECT_EQ(RootErrors().size(), 1u);
}

// PyTorch checks the outcome of a decomposition within the call.
TEST_F(FailuresTest, AFailedDecompositionThrowsAtTheCall) {
  const at::Tensor negative = -at::eye(3, Remote());
  EXPECT_THROW(at::linalg_cholesky(negative), c10::LinAlgError);
  EXPECT_THROW(at::linalg_inv(at::zeros({3, 3}, Remote())), c10::LinAlgError);
  at::Tensor factor = at::eye(3, Remote()).requires_grad_();
  EXPECT_THROW(at::linalg_cholesky(factor - 2), c10::LinAlgError);
  ExpectValue(at::linalg_cholesky(-negative), at::eye(3));
  EXPECT_TRUE(RootErrors().empty());
}

TEST_F(FailuresTest, UnreadErrorIsTheStatusOfClose) {
  at::index_select(at::ones({4}, Remote()), 0, at::tensor({5}).to(Device()));
  EXPECT_EQ(ErrorReason(Close()), "OPERATOR_FAILED");
}

TEST_F(FailuresTest, ADataDependentShapeOfAPoisonedValueThrowsAtTheCall) {
  at::Tensor x = at::ones({4}, Remote());
  at::Tensor bad = at::index_select(x, 0, at::tensor({5}).to(Device()));
  const std::optional<Error> error = Caught([&] { bad.nonzero(); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->error_id(), Caught([&] { bad.cpu(); })->error_id());
  EXPECT_EQ(x.nonzero().size(0), 4);
  EXPECT_EQ(RootErrors().size(), 1u);
}

// --- Too much memory.

void ExpectNoRoom(const std::optional<Error>& error, const std::string& asked) {
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->status().code(), absl::StatusCode::kResourceExhausted)
      << error->status();
  for (const std::string& part :
       {std::string("limit"), absl::StrCat(kWorkerMemory), std::string("used"),
        std::string("asked"), asked}) {
    EXPECT_THAT(std::string(error->status().message()), HasSubstr(part));
  }
}

at::Tensor TooLarge() {
  return at::empty({static_cast<int64_t>(kWorkerMemory) / 4 + 1024});
}

void ExpectRoom() {
  const at::Tensor fits = at::rand({1 << 20});
  ExpectValue(fits.to(Device()), fits);
}

TEST_F(FailuresTest, TenTerabytesAreRefusedAndNothingChanges) {
  const at::Tensor local = at::arange(8, at::TensorOptions(at::kFloat));
  at::Tensor x = local.to(Device());
  at::Tensor empty = at::empty({int64_t{10} << 38}, Remote());
  empty.select(0, 3).fill_(1);
  ExpectNoRoom(Caught([&] { empty.select(0, 3).cpu(); }),
               absl::StrCat(int64_t{10} << 40));
  at::Tensor column = at::ones({1 << 21, 1}, Remote());
  at::Tensor product = at::matmul(column, column.t());
  at::Tensor corner = product.slice(0, 0, 2).slice(1, 0, 2) + 1;
  ExpectNoRoom(Caught([&] { corner.cpu(); }), absl::StrCat(int64_t{1} << 44));
  at::Tensor zeros = at::zeros({int64_t{10} << 38}, Remote());
  ExpectNoRoom(Caught([&] { zeros.select(0, 0).cpu(); }),
               absl::StrCat(int64_t{10} << 40));
  ExpectValue(x, local);
  ExpectValue(column.sum(), at::full({}, static_cast<float>(1 << 21)));
  empty = product = zeros = at::Tensor();
  // All of the memory is available.
  at::Tensor most = at::ones({(kWorkerMemory / 4) / 10 * 9}, Remote());
  ExpectValue(most.select(0, -1) + x, local + 1);
  EXPECT_EQ(RootErrors().size(), 3u);
}

TEST_F(FailuresTest, AnUploadOverTheLimitIsRefusedAtTheCall) {
  const at::Tensor local = at::arange(8, at::TensorOptions(at::kFloat));
  at::Tensor x = local.to(Device());
  ExpectValue(x, local);
  const at::Tensor large = TooLarge();
  ExpectNoRoom(Caught([&] { large.to(Device()); }),
               absl::StrCat(large.numel() * 4));
  ExpectValue(x + 1, local + 1);
  ExpectRoom();
}

TEST_F(FailuresTest, AFirstUploadOverTheLimitIsRefusedAtTheCall) {
  const std::optional<Error> error = Caught([] { TooLarge().to(Device()); });
  EXPECT_EQ(error.value().status().code(),
            absl::StatusCode::kResourceExhausted);
  ExpectRoom();
}

TEST_F(FailuresTest, AnUploadGoesThroughWhereAFreeMakesRoom) {
  // Each takes most of the worker's memory, so there is only room for one.
  const auto count = static_cast<int64_t>(kWorkerMemory) / 4 / 10 * 6;
  for (int round = 0; round < 4; ++round) {
    const at::Tensor local = at::full({count}, round + 0.5);
    at::Tensor x = local.to(Device());
    // This call is not executed yet when the next tensor is uploaded.
    at::Tensor last = x.select(0, -1) + 1;
    x.reset();
    ExpectValue(last, at::full({}, round + 1.5));
  }
  EXPECT_TRUE(RootErrors().empty());
}

// --- A process ends.

TEST_F(FailuresTest, WorkGoesOnWhileTheCoordinatorIsAway) {
  at::Tensor old = at::rand({300, 300});
  at::Tensor kept = old.to(Device());
  at::Tensor counter = at::zeros({}, Remote());
  float expected = 0;
  const auto step = [&] {
    counter.add_(kept.select(0, 0).sum() * 0 + 1);
    ASSERT_EQ(counter.item<float>(), ++expected);
  };
  for (int i = 0; i < 20; ++i) step();
  ASSERT_EQ(kill(cluster().coordinator_pid(), SIGKILL), 0);
  for (int i = 0; i < 200; ++i) step();
  ASSERT_EQ(cluster().RestartCoordinator(), absl::OkStatus());
  const AdminClient admin = AdminOf(cluster());
  EXPECT_TRUE(Eventually([&] {
    step();
    const v1::SessionInfo session = admin.SessionOf("failures_test");
    return session.state() == v1::SessionInfo::ATTACHED &&
           session.lease_ids_size() == 1;
  }));
  // After this time, a coordinator that lost its state would drop sessions.
  const absl::Time later = absl::Now() + kSessionTimeout + absl::Seconds(1);
  EXPECT_TRUE(Eventually([&] {
    step();
    return absl::Now() > later;
  }));
  ExpectValue(kept, old);
  EXPECT_NE(WhereIs(1).value().worker_id, WhereIs(0).value().worker_id);
  ExpectValue(at::ones({3}, Remote(1)) + 1, at::full({3}, 2.f));
  EXPECT_TRUE(RootErrors().empty());
}

TEST(WorkerLostTest, EveryWaitEndsAndANewSessionUsesTheOtherWorker) {
  const std::unique_ptr<ClusterProcesses> cluster =
      ClusterProcesses::Start(TwoWorkers()).value();
  ConnectOptions options = OptionsFor(*cluster);
  options.recovery = "off";
  ASSERT_TRUE(Connect(options).ok());
  const std::string worker = WhereIs(0)->worker_id;
  ASSERT_NE(WhereIs(1)->worker_id, worker);
  at::Tensor elsewhere = at::ones({4}, Remote(1));
  at::Tensor x = at::rand({1500, 1500}, Remote());
  at::Tensor small = at::ones({4}, Remote());
  ExpectValue(small, at::ones({4}));
  // A minute of device time, in few messages.
  at::Tensor busy = x;
  for (int i = 0; i < 500; ++i) busy = at::matmul(busy, x) * 1e-3;

  const uint64_t reads = GetStatistics().reads;
  std::vector<std::string> reasons(3), texts(3);
  const auto wait = [&](int i, const std::function<void()>& blocks) {
    const std::optional<Error> error = Caught(blocks);
    if (!error.has_value()) return;
    reasons[i] = error->reason();
    texts[i] = error->what();
  };
  std::vector<std::thread> threads;
  const AdminClient admin = AdminOf(*cluster);
  threads.emplace_back([&] { wait(0, [&] { busy.cpu(); }); });
  // Waits until the worker has the runs, because a read that arrived before
  // them would be answered.
  EXPECT_TRUE(Eventually([&] {
    return GetStatistics().reads == reads + 1 &&
           admin.Worker(worker).queued_runs() > 0;
  }));
  threads.emplace_back([&] { wait(1, [&] { small.cpu(); }); });
  threads.emplace_back([&] {
    const absl::Status status = Synchronize(0);
    reasons[2] = ErrorReason(status);
    texts[2] = std::string(status.message());
  });
  EXPECT_TRUE(Eventually([&] { return GetStatistics().reads == reads + 2; }));
  int index = -1;
  ASSERT_TRUE(absl::SimpleAtoi(worker.substr(worker.find('-') + 1), &index));
  ASSERT_EQ(kill(cluster->worker_pids().at(index), SIGKILL), 0);
  const absl::Time killed = absl::Now();
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(absl::Now() - killed, kSoon);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(reasons[i], "WORKER_LOST") << texts[i];
    EXPECT_THAT(texts[i], HasSubstr(worker));
  }
  EXPECT_EQ(ReasonOf([&] { small.add(1); }), "WORKER_LOST");
  EXPECT_EQ(ReasonOf([&] { small.add_(1); }), "WORKER_LOST");
  EXPECT_EQ(ReasonOf([&] { small.cpu(); }), "WORKER_LOST");
  EXPECT_EQ(ReasonOf([&] { small.nonzero(); }), "WORKER_LOST");
  // New tensors go to the other worker; the old ones stay lost.
  ExpectValue(at::ones({4}).to(Device()), at::ones({4}));
  EXPECT_NE(WhereIs(0)->worker_id, worker);
  EXPECT_EQ(Synchronize(0), absl::OkStatus());
  EXPECT_EQ(ReasonOf([&] { small.cpu(); }), "WORKER_LOST");
  ASSERT_EQ(RootErrors().size(), 1u);
  EXPECT_EQ(ErrorReason(RootErrors()[0]), "WORKER_LOST");
  ExpectValue(elsewhere + 1, at::full({4}, 2.f));

  const absl::Time closing = absl::Now();
  (void)Close();
  EXPECT_LT(absl::Now() - closing, kSoon);
  ASSERT_TRUE(Connect(options).ok());
  ExpectValue(at::ones({4}, Remote()) + 1, at::full({4}, 2.f));
  EXPECT_NE(WhereIs(0)->worker_id, worker);
  EXPECT_EQ(Close(), absl::OkStatus());
}

// Runs client_program on the shared cluster, which it finds through the
// environment.
class ClientProgram {
 public:
  explicit ClientProgram(const std::string& end)
      : log_(absl::StrCat(testing::TempDir(), "/client-", end, ".log")) {
    const ClusterProcesses& cluster = environment->cluster();
    setenv("DJINN_COORDINATOR", cluster.coordinator_address().c_str(), 1);
    setenv("DJINN_TOKEN_FILE", cluster.token_file().c_str(), 1);
    unlink(log_.c_str());
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const absl::Status started =
        process_.Start("tests/e2e/client_program", {end}, nothing, log_);
    EXPECT_TRUE(started.ok()) << started;
    close(nothing);
    unsetenv("DJINN_COORDINATOR");
    unsetenv("DJINN_TOKEN_FILE");
  }

  std::string Output() const { return process_.LogTail(); }
  void WaitFor(const std::string& text) {
    EXPECT_TRUE(Eventually([&] {
      return Output().find(text) != std::string::npos || !process_.Running();
    }));
    EXPECT_THAT(Output(), HasSubstr(text));
  }
  void Kill() { process_.Signal(SIGKILL); }
  void ExpectCleanEnd() {
    EXPECT_TRUE(process_.WaitForExit(absl::Seconds(30))) << Output();
    EXPECT_EQ(process_.DescribeEnd(), "ended with status 0") << Output();
  }

 private:
  const std::string log_;
  ChildProcess process_;
};

TEST(ClientProgramTest, AKilledClientsStoragesGoAndItsContentsStay) {
  const AdminClient admin = AdminOf(environment->cluster());
  ClientProgram program("hold");
  program.WaitFor("ready");
  // The program holds weights and their double.
  EXPECT_TRUE(Eventually([&] {
    return admin.SessionOf("client_program").storage_bytes() >= 8 << 20;
  }));
  program.Kill();
  const absl::Time killed = absl::Now();
  EXPECT_TRUE(Eventually(
      [&] { return admin.SessionOf("client_program").storage_bytes() == 0; }));
  // The session could have come back until then.
  EXPECT_LT(absl::Now() - killed, 3 * kSessionTimeout);
  EXPECT_TRUE(Eventually(
      [&] { return admin.SessionOf("client_program").session_id().empty(); }));
  EXPECT_GE(admin.Tenant("local").content_bytes(), 4u << 20);
  EXPECT_TRUE(
      Eventually([&] { return admin.Tenant("local").storage_bytes() == 0; }));
  ClientProgram again("again");
  again.ExpectCleanEnd();
  again.WaitFor("held 1");
}

TEST(ClientProgramTest, ExitWithAnOpenSessionAndLiveTensors) {
  ClientProgram program("exit");
  program.ExpectCleanEnd();
  // The program closed its session.
  EXPECT_EQ(
      AdminOf(environment->cluster()).SessionOf("client_program").session_id(),
      "");
}

TEST(ClientProgramTest, UseAfterForkThrowsAndLeavesTheParentAlone) {
  ClientProgram program("fork");
  program.ExpectCleanEnd();
}

// --- No way in.

TEST(ConnectTest, RefusalsSayWhatToFix) {
  const ConnectOptions good = OptionsFor(environment->cluster());
  struct Case {
    std::string reason;
    absl::StatusCode code;
    std::function<void(ConnectOptions*)> spoil;
  };
  const auto away = [](const std::string& address) {
    return [address](ConnectOptions* o) {
      o->coordinator = address;
      o->connect_timeout = absl::Milliseconds(300);
    };
  };
  const std::vector<Case> cases = {
      {"TOKEN_UNKNOWN", absl::StatusCode::kUnauthenticated,
       [](ConnectOptions* o) { o->token = "0123456789abcdef"; }},
      {"SECRET_FILE", absl::StatusCode::kFailedPrecondition,
       [](ConnectOptions* o) { o->token_file = "no/such/file"; }},
      {"NO_TOKEN", absl::StatusCode::kFailedPrecondition,
       [](ConnectOptions* o) { o->token_file.clear(); }},
      {"NO_SESSION", absl::StatusCode::kFailedPrecondition,
       [](ConnectOptions* o) { o->coordinator.clear(); }},
      {"MALFORMED_ADDRESS", absl::StatusCode::kInvalidArgument,
       [](ConnectOptions* o) { o->coordinator = "nowhere"; }},
      {"INSECURE_ADDRESS", absl::StatusCode::kFailedPrecondition,
       [](ConnectOptions* o) { o->coordinator = "10.1.2.3:7070"; }},
      {"COORDINATOR_UNREACHABLE", absl::StatusCode::kUnavailable,
       away("unix:no-such.sock")},
      {"COORDINATOR_UNREACHABLE", absl::StatusCode::kUnavailable,
       away("127.0.0.1:1")},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.reason);
    ConnectOptions options = good;
    test.spoil(&options);
    const absl::Time start = absl::Now();
    const absl::Status status = Connect(options);
    EXPECT_LT(absl::Now() - start, absl::Seconds(5));
    EXPECT_EQ(ErrorReason(status), test.reason) << status;
    EXPECT_EQ(status.code(), test.code) << status;
    EXPECT_FALSE(IsConnected());
  }
  ASSERT_TRUE(Connect(good).ok());
  EXPECT_EQ(ErrorReason(Connect(good)), "SESSION_OPEN");
  ExpectValue(at::ones({2}, Remote()), at::ones({2}));
  EXPECT_TRUE(Close().ok());
}

TEST(ConnectTest, TheDeviceWithoutASessionSaysHowToGetOne) {
  const std::optional<Error> error = Caught([] { at::ones({2}).to(Device()); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->reason(), "NO_SESSION");
  EXPECT_THAT(error->what(), HasSubstr("DJINN_COORDINATOR"));
}

}  // namespace
}  // namespace djinn
