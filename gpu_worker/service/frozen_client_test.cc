// Tests clients on a Unix socket that request much and read none of it: a write
// stays half done in the socket, and gRPC never ends it.
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/patience.h"
#include "common/base/random.h"
#include "common/lease/testing/lease_authority.h"
#include "common/net/protocol_version.h"
#include "common/net/server.h"
#include "djinn/v1/execution.pb.h"
#include "gpu_worker/core/worker_core.h"
#include "gpu_worker/device/fake/fake_device.h"
#include "gpu_worker/service/execution_service.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

// A relative path, because test directories' names are too long for a socket.
constexpr char kSocket[] = "frozen_client_test.sock";
constexpr uint64_t kFloats = 4 << 20;

void Must(bool done, const char* what) {
  if (done) return;
  perror(what);
  std::abort();
}

// Speaks just enough HTTP/2: sends, and reads nothing.
class FrozenClient {
 public:
  FrozenClient() : socket_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, kSocket, sizeof(kSocket));
    Must(connect(socket_, reinterpret_cast<sockaddr*>(&address),
                 sizeof(address)) == 0,
         "connect");
    Write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    // Allows 2^30 bytes per stream, and as many more for the connection.
    WriteFrame(kSettings, 0, 0, Number(4, 2) + Number(1 << 30, 4));
    WriteFrame(kWindowUpdate, 0, 0, Number(1 << 30, 4));
  }
  ~FrozenClient() { close(socket_); }

  void Begin(int stream, const std::string& method) {
    WriteFrame(
        kHeaders, kEndHeaders, stream,
        absl::StrCat(Header(":method", "POST"), Header(":scheme", "http"),
                     Header(":path", "/djinn.v1.Execution/" + method),
                     Header(":authority", "worker"), Header("te", "trailers"),
                     Header("content-type", "application/grpc")));
  }
  void Send(int stream, const google::protobuf::Message& message) {
    const std::string bytes = message.SerializeAsString();
    WriteFrame(kData, 0, stream,
               Number(0, 1) + Number(bytes.size(), 4) + bytes);
  }
  void Cancel(int stream) { WriteFrame(kReset, 0, stream, Number(8, 4)); }

  // Waits until the worker has written more than the replies to a few messages.
  void WaitForBytes() {
    Patience patience;
    for (int there = 0; there < 64 << 10; patience.Yield()) {
      Must(ioctl(socket_, FIONREAD, &there) == 0, "ioctl");
    }
  }

 private:
  enum Type {
    kData = 0,
    kHeaders = 1,
    kReset = 3,
    kSettings = 4,
    kWindowUpdate = 8
  };
  static constexpr int kEndHeaders = 4;

  static std::string Number(uint64_t value, int bytes) {
    std::string number;
    while (bytes-- > 0) number += static_cast<char>(value >> (8 * bytes));
    return number;
  }
  // Encodes the header as a literal without indexing.
  static std::string Header(const std::string& key, const std::string& value) {
    return Number(0, 1) + Number(key.size(), 1) + key +
           Number(value.size(), 1) + value;
  }
  void WriteFrame(Type type, int flags, int stream,
                  const std::string& payload) {
    Write(Number(payload.size(), 3) + Number(type, 1) + Number(flags, 1) +
          Number(stream, 4) + payload);
  }
  void Write(const std::string& bytes) {
    Must(send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
             static_cast<ssize_t>(bytes.size()),
         "send");
  }

  const int socket_;
};

class FrozenClientTest : public testing::Test {
 protected:
  static constexpr int kControl = 1;
  static constexpr int kBulk = 3;

  FrozenClientTest()
      : core_(Options(), &device_, Clock::Real(), RandomSource::Real()),
        service_(&core_),
        server_(*Server::Start(
            {absl::StrCat("unix:", kSocket), false, {&service_}, {}})) {
    v1::DesiredState desired;
    const v1::SignedLease signed_lease =
        authority_.Issue(LeaseAuthority::Claims("lease", "session", "tenant"),
                         "w0", core_.incarnation());
    authority_.List(signed_lease, &desired);
    token_ = signed_lease.SerializeAsString();
    core_.Apply(desired);
  }
  ~FrozenClientTest() override {
    core_.Shutdown();
    server_->Shutdown(absl::ZeroDuration());
  }

  static WorkerCoreOptions Options() {
    WorkerCoreOptions options;
    options.worker_id = "w0";
    options.resume_timeout = absl::Hours(1);
    options.housekeeping_interval = absl::Milliseconds(2);
    return options;
  }

  v1::ClientHello Hello() {
    v1::ClientHello hello;
    hello.set_protocol_version(kProtocolVersion);
    hello.set_session_id("session");
    hello.set_session_epoch(1);
    hello.set_lease_token(token_);
    hello.set_worker_incarnation(core_.incarnation());
    return hello;
  }
  void SayHello(const v1::ClientHello& hello, FrozenClient* client) {
    v1::ControlRequest request;
    *request.mutable_hello() = hello;
    client->Begin(kControl, "Control");
    client->Send(kControl, request);
    v1::BulkChunk chunk;
    chunk.mutable_hello()->set_session_id("session");
    chunk.mutable_hello()->set_lease_token(token_);
    client->Begin(kBulk, "Bulk");
    client->Send(kBulk, chunk);
  }
  // Requests a large storage's bytes.
  void AskForMuch(FrozenClient* client) {
    v1::ControlRequest request;
    request.mutable_ordered()->set_sequence(1);
    v1::CreateStorage* const create =
        request.mutable_ordered()->mutable_create_storage();
    create->set_storage(1);
    create->set_size_bytes(kFloats * sizeof(float));
    client->Send(kControl, request);
    request.mutable_ordered()->set_sequence(2);
    v1::Read* const read = request.mutable_ordered()->mutable_read();
    read->set_storage(1);
    read->set_version(1);
    read->set_transfer_id(9);
    read->mutable_view()->set_data_type(v1::DATA_TYPE_FLOAT32);
    read->mutable_view()->add_sizes(kFloats);
    read->mutable_view()->add_strides(1);
    client->Send(kControl, request);
    client->WaitForBytes();
  }

  FakeDevice device_{256 << 20};
  LeaseAuthority authority_;
  std::string token_;
  WorkerCore core_;
  ExecutionService service_;
  std::unique_ptr<Server> server_;
};

TEST_F(FrozenClientTest, ItsSessionIsDetachedAndResumed) {
  FrozenClient client;
  SayHello(Hello(), &client);
  AskForMuch(&client);
  EXPECT_EQ(core_.detached_sessions(), 0u);
  client.Cancel(kControl);
  for (Patience patience; core_.detached_sessions() == 0;) patience.Yield();
  EXPECT_EQ(core_.Snapshot().sessions(0).storage_count(), 1u);

  FrozenClient again;
  v1::ClientHello hello = Hello();
  hello.mutable_resume()->set_sent_sequence(2);
  SayHello(hello, &again);
  // The bytes are sent once more, and not to the frozen client.
  again.WaitForBytes();
  EXPECT_EQ(core_.detached_sessions(), 0u);
}

TEST_F(FrozenClientTest, TheCoreStopsWithoutIt) {
  FrozenClient client;
  SayHello(Hello(), &client);
  AskForMuch(&client);
  core_.Shutdown();
  EXPECT_EQ(core_.Snapshot().sessions(0).storage_count(), 0u);
}

}  // namespace
}  // namespace djinn::worker
