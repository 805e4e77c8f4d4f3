// Tests tensors that move to a worker process over several bulk connections at
// the same time.
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/cluster/embedded_cluster.h"
#include "client_lib/session/remote_session.h"
#include "client_lib/transport/grpc_coordinator_link.h"
#include "client_lib/transport/grpc_worker_connector.h"
#include "gtest/gtest.h"
#include "tests/chaos/fault_proxy.h"

namespace djinn {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);
// Not a whole number of chunks.
constexpr size_t kBytes = (size_t{32} << 20) + 20;

// Returns bytes of which every chunk is different.
std::shared_ptr<std::string> Pattern(uint32_t seed) {
  auto bytes = std::make_shared<std::string>(kBytes, '\0');
  uint32_t state = seed;
  for (char& byte : *bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<char>(state >> 24);
  }
  return bytes;
}

class BulkChannelsTest : public testing::TestWithParam<int> {
 protected:
  BulkChannelsTest() {
    const char* const base = std::getenv("TMPDIR");
    folder_ = absl::StrCat(base == nullptr ? "/tmp" : base, "/bulk-XXXXXX");
    if (mkdtemp(folder_.data()) == nullptr) std::abort();
    const std::string path = absl::StrCat(folder_, "/w");
    ClusterOptions options;
    options.device_kind = "fake";
    options.worker_memory_bytes = 256 << 20;
    options.advertise = {absl::StrCat("unix:", path)};
    cluster_ = ClusterProcesses::Start(options).value();
    network_ = std::make_unique<FaultProxy>(path, cluster_->worker_socket(0));
    std::ifstream file(cluster_->token_file());
    std::string token;
    file >> token;
    SessionOptions session_options;
    session_options.operation_timeout = kPatience;
    auto session = OpenSession(
        session_options,
        *MakeGrpcCoordinatorLink(cluster_->coordinator_address(), token),
        MakeGrpcWorkerConnector({}, GetParam()));
    EXPECT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
    device_ = *session_->Device(0);
  }
  ~BulkChannelsTest() override {
    EXPECT_EQ(session_->Close(kPatience), absl::OkStatus());
    session_.reset();
    network_.reset();
    rmdir(folder_.c_str());
  }

  StoragePtr Upload(const std::shared_ptr<std::string>& bytes) {
    const StoragePtr storage = device_->NewStorage(bytes->size());
    const absl::Status status =
        device_->Upload(0, storage.get(), {*bytes, bytes});
    EXPECT_TRUE(status.ok()) << status;
    return storage;
  }
  std::string Read(const StoragePtr& storage) {
    srg::TensorView view;
    view.data_type = srg::DataType::kFloat32;
    view.sizes = {static_cast<int64_t>(kBytes / sizeof(float))};
    view.strides = {1};
    std::string bytes(kBytes, '\0');
    EXPECT_EQ(device_->Read(0, storage.get(), view, bytes.data(), bytes.size()),
              absl::OkStatus());
    return bytes;
  }

  std::string folder_;
  std::unique_ptr<ClusterProcesses> cluster_;
  std::unique_ptr<FaultProxy> network_;
  std::unique_ptr<Session> session_;
  std::shared_ptr<VirtualDevice> device_;
};

INSTANTIATE_TEST_SUITE_P(Channels, BulkChannelsTest, testing::Values(1, 2, 4));

TEST_P(BulkChannelsTest, ATensorIsTheSameThereAndBack) {
  const auto bytes = Pattern(1);
  const StoragePtr storage = Upload(bytes);
  // EXPECT_EQ would print the bytes.
  EXPECT_TRUE(Read(storage) == *bytes);
  EXPECT_EQ(network_->connections(), 1u + GetParam());
}

TEST_P(BulkChannelsTest, AnUploadIsResumedWhenOneConnectionBreaks) {
  const auto bytes = Pattern(2);
  network_->CutOneAfter(kBytes / 2);
  const StoragePtr storage = Upload(bytes);
  EXPECT_TRUE(Read(storage) == *bytes);
  EXPECT_GT(network_->connections(), 1u + GetParam());
  EXPECT_TRUE(session_->RootErrors().empty());
}

TEST_P(BulkChannelsTest, AReadIsResumedWhenOneConnectionBreaks) {
  const auto bytes = Pattern(3);
  const StoragePtr storage = Upload(bytes);
  ASSERT_TRUE(Read(storage) == *bytes);
  const uint64_t connections = network_->connections();
  network_->CutOneAfter(kBytes / 2);
  EXPECT_TRUE(Read(storage) == *bytes);
  EXPECT_GT(network_->connections(), connections);
  EXPECT_TRUE(session_->RootErrors().empty());
}

}  // namespace
}  // namespace djinn
