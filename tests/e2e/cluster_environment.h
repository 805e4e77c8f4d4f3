// Provides one embedded cluster for a test binary, and a session per test. Its
// workers compute on the CPU, or on the device in DJINN_TEST_WORKER_DEVICE,
// such as "cuda:0".
#ifndef TESTS_E2E_CLUSTER_ENVIRONMENT_H_
#define TESTS_E2E_CLUSTER_ENVIRONMENT_H_

#include <cstdlib>
#include <memory>
#include <string>

#include "djinn/djinn.h"
#include "gtest/gtest.h"

namespace djinn {

inline std::string WorkerDevice() {
  const char* const named = std::getenv("DJINN_TEST_WORKER_DEVICE");
  return named != nullptr ? named : "cpu";
}

// Runs two workers from before the first test until after the last.
class ClusterEnvironment : public testing::Environment {
 public:
  void SetUp() override {
    EmbeddedClusterOptions options;
    options.workers = 2;
    options.worker_memory_bytes = uint64_t{1} << 30;
    options.worker_threads = 1;
    options.worker_device = WorkerDevice();
    cluster_ = EmbeddedCluster::Start(options).value();
  }
  void TearDown() override { cluster_.reset(); }

  EmbeddedCluster& cluster() { return *cluster_; }

  static ClusterEnvironment* Get() {
    static auto* const environment = static_cast<ClusterEnvironment*>(
        testing::AddGlobalTestEnvironment(new ClusterEnvironment));
    return environment;
  }

 private:
  std::unique_ptr<EmbeddedCluster> cluster_;
};

// Opens a session before each test, and closes it cleanly afterwards.
class SessionTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(Connect(ClusterEnvironment::Get()->cluster().connect_options()),
              absl::OkStatus());
  }
  void TearDown() override { EXPECT_EQ(Close(), absl::OkStatus()); }
};

}  // namespace djinn

#endif  // TESTS_E2E_CLUSTER_ENVIRONMENT_H_
