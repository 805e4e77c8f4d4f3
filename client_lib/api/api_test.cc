// Tests the public functions without a cluster: with wrong arguments, without a
// session, and with a session that only keeps the calls.
#include <torch/torch.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/capture/device/process_session.h"
#include "client_lib/capture/testing/capture_fixture.h"
#include "client_lib/capture/testing/recording_session.h"
#include "djinn/djinn.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using ::testing::HasSubstr;

std::string Reason(const absl::Status& status) {
  return Error::FromStatus(status).reason();
}

// No session is open, and the environment names none.
class ApiTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"DJINN_COORDINATOR", "DJINN_TOKEN_FILE",
                             "DJINN_TLS_CA_FILE", "DJINN_INSECURE"}) {
      unsetenv(name);
    }
  }

  // Returns options that are valid except for what a test changes. No process
  // listens at the address.
  static ConnectOptions Options() {
    ConnectOptions options;
    // Relative, because a socket's path has at most 107 bytes.
    options.coordinator = "unix:no-coordinator.sock";
    options.token = "token";
    options.tls = TlsOptions();
    options.connect_timeout = absl::ZeroDuration();
    return options;
  }
};

TEST_F(ApiTest, ConnectWithoutCoordinatorNamesTheVariable) {
  ConnectOptions options = Options();
  options.coordinator.clear();
  const absl::Status status = Connect(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Reason(status), "NO_SESSION");
  EXPECT_THAT(status.message(), HasSubstr("DJINN_COORDINATOR"));
}

TEST_F(ApiTest, ConnectWithoutTokenNamesTheVariable) {
  ConnectOptions options = Options();
  options.token.clear();
  const absl::Status status = Connect(options);
  EXPECT_EQ(Reason(status), "NO_TOKEN");
  EXPECT_THAT(status.message(), HasSubstr("DJINN_TOKEN_FILE"));
}

TEST_F(ApiTest, ConnectWithMissingTokenFileNamesTheFile) {
  ConnectOptions options = Options();
  options.token.clear();
  options.token_file = testing::TempDir() + "/no-token";
  const absl::Status status = Connect(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Reason(status), "SECRET_FILE");
  EXPECT_THAT(status.message(), HasSubstr("/no-token"));
}

TEST_F(ApiTest, ConnectToMalformedAddressIsInvalid) {
  for (const char* address : {"coordinator", "127.0.0.1:port", "unix:"}) {
    ConnectOptions options = Options();
    options.coordinator = address;
    EXPECT_EQ(Reason(Connect(options)), "MALFORMED_ADDRESS") << address;
  }
}

TEST_F(ApiTest, ConnectToAnotherHostNeedsTls) {
  ConnectOptions options = Options();
  options.coordinator = "192.0.2.1:7000";
  const absl::Status status = Connect(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("192.0.2.1:7000"));
}

TEST_F(ApiTest, TlsAndInsecureContradictEachOther) {
  ConnectOptions options = Options();
  options.tls->ca_file = "ca.pem";
  options.insecure = true;
  EXPECT_EQ(Reason(Connect(options)), "CONTRADICTION");
  options.insecure.reset();
  setenv("DJINN_INSECURE", "1", 1);
  EXPECT_EQ(Reason(Connect(options)), "CONTRADICTION");
}

TEST_F(ApiTest, EnvironmentAllowsAnotherHostWithoutTls) {
  ConnectOptions options = Options();
  options.coordinator = "192.0.2.1:7000";
  setenv("DJINN_INSECURE", "1", 1);
  EXPECT_EQ(Reason(Connect(options)), "COORDINATOR_UNREACHABLE");
  options.insecure = false;
  EXPECT_EQ(Reason(Connect(options)), "INSECURE_ADDRESS");
  options.insecure.reset();
  setenv("DJINN_INSECURE", "0", 1);
  EXPECT_EQ(Reason(Connect(options)), "INSECURE_ADDRESS");
  setenv("DJINN_INSECURE", "yes", 1);
  const absl::Status status = Connect(options);
  EXPECT_EQ(Reason(status), "BAD_SWITCH");
  EXPECT_THAT(status.message(), HasSubstr("DJINN_INSECURE"));
}

TEST_F(ApiTest, ConnectGivesUpAfterTheTimeout) {
  const absl::Status status = Connect(Options());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Reason(status), "COORDINATOR_UNREACHABLE");
  EXPECT_FALSE(IsConnected());
}

TEST_F(ApiTest, DeviceWorkersMustBeInRange) {
  for (const auto& [device, workers] :
       {std::pair(0, 0), std::pair(0, 17), std::pair(-1, 2),
        std::pair(capture::DeviceCount(), 2)}) {
    ConnectOptions options = Options();
    options.device_workers = {{device, workers}};
    EXPECT_EQ(Reason(Connect(options)), "BAD_DEVICE_WORKERS")
        << device << " " << workers;
  }
}

TEST_F(ApiTest, RunDeadlineMustBePositive) {
  ConnectOptions options = Options();
  options.urgency.run_deadline = absl::ZeroDuration();
  EXPECT_EQ(Reason(Connect(options)), "BAD_URGENCY");
  EXPECT_EQ(Reason(SetUrgency(options.urgency).status()), "BAD_URGENCY");
}

TEST_F(ApiTest, WithoutSessionCallsSayHowToOpenOne) {
  EXPECT_FALSE(IsConnected());
  for (const absl::Status& status :
       {Synchronize(), WhereIs().status(), ExportGraph([] {}).status()}) {
    EXPECT_EQ(Reason(status), "NO_SESSION");
    EXPECT_THAT(status.message(), HasSubstr("djinn::Connect()"));
  }
  EXPECT_EQ(Reason(SetUrgency({}).status()), "NO_SESSION");
}

bool IsAvailable() {
  return at::globalContext()
      .getAcceleratorHooksInterface(c10::DeviceType::PrivateUse1)
      .isAvailable();
}

TEST_F(ApiTest, AcceleratorIsAvailableIfASessionIsConfigured) {
  EXPECT_FALSE(IsAvailable());
  setenv("DJINN_COORDINATOR", "127.0.0.1:1", 1);
  EXPECT_TRUE(IsAvailable());
  unsetenv("DJINN_COORDINATOR");
}

TEST_F(ApiTest, WithoutSessionThereIsNothingToCloseOrCount) {
  EXPECT_EQ(Close(), absl::OkStatus());
  EXPECT_EQ(GetStatistics().calls, 0u);
  EXPECT_TRUE(RootErrors().empty());
  CostScope scope;
  const absl::StatusOr<Cost> cost = scope.Get();
  ASSERT_EQ(cost.status(), absl::OkStatus());
  EXPECT_EQ(cost->runs, 0u);
}

TEST_F(ApiTest, OneProfileRunsAtATimeAndFinishesOnce) {
  ProfileScope first;
  EXPECT_EQ(first.status(), absl::OkStatus());
  ProfileScope second;
  EXPECT_EQ(Reason(second.status()), "PROFILE_RUNNING");
  EXPECT_EQ(Reason(second.Finish().status()), "PROFILE_RUNNING");
  EXPECT_EQ(first.Finish().status(), absl::OkStatus());
  EXPECT_EQ(Reason(first.Finish().status()), "PROFILE_ENDED");
  EXPECT_EQ(ProfileScope().status(), absl::OkStatus());
}

TEST_F(ApiTest, ReadAsyncNeedsARemoteTensor) {
  const absl::Status local = ReadAsync(torch::zeros({2})).status();
  EXPECT_EQ(Reason(local), "NOT_REMOTE");
  EXPECT_THAT(local.message(), HasSubstr("cpu"));
  const absl::Status undefined = ReadAsync(at::Tensor()).status();
  EXPECT_EQ(Reason(undefined), "NOT_REMOTE");
  EXPECT_THAT(undefined.message(), HasSubstr("undefined"));
}

TEST_F(ApiTest, EmbeddedClusterWithoutProgramsNamesTheFolder) {
  setenv("DJINN_BIN_DIR", "/no-such-folder", 1);
  const absl::Status status = EmbeddedCluster::Start().status();
  unsetenv("DJINN_BIN_DIR");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("/no-such-folder"));
}

// A session that records calls is open.
using OpenSessionTest = capture::CaptureTest;

TEST_F(OpenSessionTest, SecondConnectIsRefused) {
  EXPECT_TRUE(IsConnected());
  ConnectOptions options;
  options.coordinator = "unix:/coordinator";
  options.token = "token";
  const absl::Status status = Connect(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Reason(status), "SESSION_OPEN");
}

TEST_F(OpenSessionTest, AfterCloseTheDeviceIsGone) {
  EXPECT_EQ(Synchronize(), absl::OkStatus());
  EXPECT_TRUE(IsAvailable());
  EXPECT_EQ(Close(), absl::OkStatus());
  EXPECT_FALSE(IsConnected());
  EXPECT_FALSE(IsAvailable());
  EXPECT_EQ(Reason(Synchronize()), "NO_SESSION");
  EXPECT_EQ(Close(), absl::OkStatus());
}

TEST_F(OpenSessionTest, WhereIsReturnsThePlacement) {
  const absl::StatusOr<Placement> placement = WhereIs(2);
  ASSERT_EQ(placement.status(), absl::OkStatus());
  EXPECT_EQ(placement->worker_id, "recorder");
  EXPECT_EQ(placement->reason, "for tests");
  EXPECT_EQ(placement->memory_bytes, RecordingDevice::kMemoryBytes);
  EXPECT_EQ(Device(2).str(), "remote_accelerator:2");
}

TEST_F(OpenSessionTest, CostOfASessionThatEndedIsUnknown) {
  CostScope scope;
  EXPECT_EQ(Close(), absl::OkStatus());
  EXPECT_EQ(Reason(scope.Get().status()), "SESSION_CLOSED");
}

TEST_F(OpenSessionTest, CostReturnsTheSessionsError) {
  CostScope scope;
  EXPECT_EQ(scope.Get().status().code(), absl::StatusCode::kUnimplemented);
}

TEST_F(OpenSessionTest, ReadOfAnEmptyTensorIsReadyAtOnce) {
  const absl::StatusOr<PendingTensor> read = ReadAsync(Remote({0, 3}));
  ASSERT_EQ(read.status(), absl::OkStatus());
  EXPECT_TRUE(read->Ready());
  bool called = false;
  read->OnReady([&] { called = true; });
  EXPECT_TRUE(called);
  const absl::StatusOr<at::Tensor> value = read->Wait(absl::ZeroDuration());
  ASSERT_EQ(value.status(), absl::OkStatus());
  EXPECT_TRUE(value->is_cpu());
  EXPECT_EQ(value->sizes(), at::IntArrayRef({0, 3}));
  EXPECT_EQ(recorder_->reads(), std::vector<uint64_t>());
}

TEST_F(OpenSessionTest, OneGraphExportRunsAtATime) {
  absl::Status inner;
  const absl::StatusOr<std::string> outer =
      ExportGraph([&] { inner = ExportGraph([] {}).status(); });
  EXPECT_EQ(outer.status(), absl::OkStatus());
  EXPECT_EQ(inner.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Reason(inner), "EXPORT_RUNNING");
}

TEST_F(OpenSessionTest, ExceptionEndsTheGraphExport) {
  EXPECT_THROW(
      (void)ExportGraph([] { throw std::runtime_error("of the program"); }),
      std::runtime_error);
  EXPECT_EQ(ExportGraph([] {}, GraphFormat::kJson).status(), absl::OkStatus());
}

}  // namespace
}  // namespace djinn
