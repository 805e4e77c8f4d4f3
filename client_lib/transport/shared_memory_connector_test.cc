#include "client_lib/transport/shared_memory_connector.h"

#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/patience.h"
#include "common/transport/in_process.h"
#include "common/transport/shared_memory/shared_memory_stream.h"
#include "djinn/v1/execution.pb.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

constexpr RingSizes kRings = {.control = 4096, .bulk = 4 * kBulkChunkBytes};

// Counts the connections that are left to it.
class OtherConnector : public WorkerConnector {
 public:
  explicit OtherConnector(int* calls) : calls_(calls) {}
  absl::StatusOr<std::unique_ptr<ClientStream>> Connect(
      const v1::Lease&, const std::string&) override {
    ++*calls_;
    return MakeInProcessPair().client;
  }

 private:
  int* const calls_;
};

class Receiver : public ClientStreamReceiver {
 public:
  void OnMessage(v1::ControlResponse) override {}
  void OnBulk(uint64_t, uint64_t,
              absl::Span<const absl::string_view>) override {}
  void OnClosed(absl::Status status) override {
    MutexLock lock(&mu_);
    closed_ = std::move(status);
    changed_.SignalAll();
  }
  absl::Status WaitClosed() {
    MutexLock lock(&mu_);
    for (Patience patience; !closed_.has_value();)
      patience.Wait(&changed_, &mu_);
    return *closed_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::optional<absl::Status> closed_ ABSL_GUARDED_BY(mu_);
};

class SharedMemoryConnectorTest : public testing::Test {
 protected:
  SharedMemoryConnectorTest() {
    // A socket's path has at most 107 characters, and the folder of a test may
    // have a longer path.
    std::string folder = "/tmp/djinn-XXXXXX";
    path_ = std::string(mkdtemp(folder.data())) + "/w.shm";
    lease_.set_worker_id("w0");
    lease_.set_worker_incarnation(7);
  }

  ~SharedMemoryConnectorTest() override {
    std::filesystem::remove_all(std::filesystem::path(path_).parent_path());
  }

  std::unique_ptr<ClientStream> Connect() {
    return connector_->Connect(lease_, "session").value();
  }

  std::string path_;
  v1::Lease lease_;
  int others_ = 0;
  std::unique_ptr<WorkerConnector> connector_ =
      MakeSharedMemoryConnector(std::make_unique<OtherConnector>(&others_));
};

TEST_F(SharedMemoryConnectorTest, AWorkerThatOffersNoneIsReachedOtherwise) {
  Connect();
  EXPECT_EQ(others_, 1);
}

TEST_F(SharedMemoryConnectorTest, AWorkerOfAnotherMachineIsReachedOtherwise) {
  lease_.set_shared_memory_socket(path_);
  Connect();
  EXPECT_EQ(others_, 1);
}

TEST_F(SharedMemoryConnectorTest, AWorkerOfThisMachineGetsAStream) {
  const Descriptor listener = ListenForSharedMemory(path_).value();
  lease_.set_shared_memory_socket(path_);
  Receiver receiver;
  const std::unique_ptr<ClientStream> stream = Connect();
  EXPECT_EQ(others_, 0);
  Descriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(socket.valid());
  const std::unique_ptr<WorkerStream> worker = MakeSharedMemoryWorkerStream(
      SharedConnection::Offer(std::move(socket), kRings, /*incarnation=*/7)
          .value());
  stream->Start(&receiver);
  worker->Close(MakeError(absl::StatusCode::kUnavailable, "DRAINING", "stop"));
  EXPECT_EQ(ErrorReason(receiver.WaitClosed()), "DRAINING");
}

TEST_F(SharedMemoryConnectorTest, AnotherWorkerAtThePathIsToldNothing) {
  const Descriptor listener = ListenForSharedMemory(path_).value();
  lease_.set_shared_memory_socket(path_);
  Receiver receiver;
  const std::unique_ptr<ClientStream> stream = Connect();
  Descriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const SharedConnection worker =
      SharedConnection::Offer(std::move(socket), kRings, /*incarnation=*/8)
          .value();
  stream->Start(&receiver);
  auto hello = std::make_shared<v1::ControlRequest>();
  hello->mutable_hello()->set_lease_token("secret");
  EXPECT_FALSE(stream->Send(std::move(hello)).ok());
  EXPECT_EQ(receiver.WaitClosed().message(),
            "shared memory: another worker is at this path");
  const SharedRegion::Ring ring = worker.region.control(SharedSide::kClient);
  EXPECT_EQ(ring.state->written, 0);
  Connect();
  EXPECT_EQ(others_, 1);
}

TEST_F(SharedMemoryConnectorTest, AWorkerThatRefusesIsReachedOtherwiseNext) {
  const Descriptor listener = ListenForSharedMemory(path_).value();
  lease_.set_shared_memory_socket(path_);
  Receiver receiver;
  {
    const std::unique_ptr<ClientStream> stream = Connect();
    stream->Start(&receiver);
    Descriptor(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const absl::Status closed = receiver.WaitClosed();
    EXPECT_EQ(closed.code(), absl::StatusCode::kUnavailable);
    // The end looks like a network failure, so that the session tries again.
    EXPECT_EQ(ErrorReason(closed), "");
  }
  Connect();
  EXPECT_EQ(others_, 1);
  // A new incarnation is tried again.
  lease_.set_worker_incarnation(8);
  Connect();
  EXPECT_EQ(others_, 1);
}

}  // namespace
}  // namespace djinn
