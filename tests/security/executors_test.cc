// Tests that workers with a process per tenant do what other workers do:
// sessions move between them, and their metrics are complete.
#include <signal.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/remote_session.h"
#include "client_lib/transport/grpc_coordinator_link.h"
#include "client_lib/transport/grpc_worker_connector.h"
#include "common/base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/eventually.h"
#include "tests/security/walls.h"

namespace djinn {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kPatience = absl::Seconds(30);
// One executor per worker, so that a test starts few processes.
constexpr char kProcess[] = "{mode: process, executors: 1}";

// A session of a tenant, whose device 0 has a storage of 3 MiB.
class Program {
 public:
  Program(const Walls& walls, const std::string& tenant)
      : bytes_(std::make_shared<std::string>(3 << 20, 'v')) {
    SessionOptions options;
    options.connect_timeout = kPatience;
    options.operation_timeout = kPatience;
    options.program = "executors_test";
    session_ = OpenSession(options,
                           MakeGrpcCoordinatorLink(walls.coordinator(),
                                                   Walls::TokenOf(tenant))
                               .value(),
                           MakeGrpcWorkerConnector())
                   .value();
    device_ = session_->Device(0).value();
    storage_ = device_->NewStorage(bytes_->size());
    EXPECT_TRUE(device_->Upload(0, storage_.get(), {*bytes_, bytes_}).ok());
  }
  ~Program() { EXPECT_TRUE(session_->Close(kPatience).ok()); }

  // Returns whether the storage has its bytes.
  bool HasItsBytes() {
    srg::TensorView view;
    view.data_type = srg::DataType::kFloat32;
    view.sizes = {3 << 18};
    view.strides = {1};
    std::string read(bytes_->size(), '\0');
    EXPECT_EQ(device_->Read(0, storage_.get(), view, read.data(), read.size()),
              absl::OkStatus());
    return read == *bytes_;
  }

 private:
  const std::shared_ptr<std::string> bytes_;
  std::unique_ptr<Session> session_;
  std::shared_ptr<VirtualDevice> device_;
  StoragePtr storage_;
};

// Returns the worker with a lease, of two.
size_t Serving(const Walls& walls) {
  size_t serving = 2;
  EXPECT_TRUE(Eventually([&] {
    for (size_t i = 0; i < 2; ++i) {
      if (walls.Info(i).lease_count() > 0) serving = i;
    }
    return serving < 2;
  }));
  return serving;
}

TEST(ExecutorsTest, SessionMovesToAnotherWorkersExecutorWhenItsWorkerStops) {
  Walls walls(kProcess, /*workers=*/2);
  Program program(walls, "victim");
  ASSERT_TRUE(program.HasItsBytes());
  const size_t before = Serving(walls);
  ASSERT_LT(before, 2u);
  walls.worker(before).Signal(SIGTERM);
  EXPECT_TRUE(walls.worker(before).WaitForExit(kPatience));
  // Nothing was left when the worker stopped, so nothing was rebuilt.
  EXPECT_THAT(walls.log(before), HasSubstr("end=\"nothing is left\""));
  EXPECT_THAT(walls.coordinator_log(), HasSubstr("migration done"));
  EXPECT_TRUE(program.HasItsBytes());
  const size_t after = 1 - before;
  EXPECT_EQ(walls.Info(after).lease_count(), 1);
  // The bytes came from the other worker, as this one's supervisor reports.
  EXPECT_TRUE(Eventually([&] {
    const v1::WorkerInfo info = walls.Info(after);
    return info.links_size() == 1 &&
           info.links(0).worker_id() == absl::StrCat("w", before);
  }));
}

TEST(ExecutorsTest, MetricsOfExecutorsAreAtTheWorkersPort) {
  Walls walls("{mode: process, executors: 2}");
  Program victim(walls, "victim");
  ASSERT_TRUE(victim.HasItsBytes());
  std::string metrics;
  EXPECT_TRUE(Eventually(
      [&] {
        metrics = walls.Metrics();
        return absl::StrContains(
            metrics,
            "djinn_worker_sessions{tenant=\"victim\",state=\"attached\"} 1");
      },
      kPatience))
      << metrics;
  EXPECT_THAT(metrics, HasSubstr("djinn_worker_executors{use=\"tenant\"} 1"));
  EXPECT_THAT(metrics, HasSubstr("djinn_worker_tenant_memory_bytes{"));
  EXPECT_THAT(metrics, HasSubstr("grpc_method=\"djinn.v1.Execution/Control\""));
  EXPECT_THAT(metrics, Not(HasSubstr("attacker")));
}

}  // namespace
}  // namespace djinn
