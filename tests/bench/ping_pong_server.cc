// A bare gRPC server for the floor, with nothing of Djinn's in it: gRPC's
// defaults but for Abseil's search for deadlocks, its two ways of serving, over
// a Unix socket and TCP. Prints a line "NAME ADDRESS" for each of the four and
// ends with its standard input.
#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "grpcpp/grpcpp.h"
#include "tests/bench/ping_pong.grpc.pb.h"

namespace djinn::bench {
namespace {

constexpr uint32_t kMaxReplyBytes = 64 << 20;
const grpc::Status kTooLarge(grpc::StatusCode::INVALID_ARGUMENT,
                             "reply_bytes is above 64 MiB");

// Turns the ping's payload into the pong's.
void Reply(Ping* ping, Pong* pong) {
  pong->mutable_payload()->swap(*ping->mutable_payload());
  pong->mutable_payload()->resize(ping->reply_bytes());
}

class Reactor : public grpc::ServerBidiReactor<Ping, Pong> {
 public:
  Reactor() { StartRead(&ping_); }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    if (ping_.reply_bytes() > kMaxReplyBytes) return Finish(kTooLarge);
    Reply(&ping_, &pong_);
    StartWrite(&pong_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    StartRead(&ping_);
  }
  void OnDone() override { delete this; }

 private:
  Ping ping_;
  Pong pong_;
};

class CallbackService : public PingPong::CallbackService {
  grpc::ServerBidiReactor<Ping, Pong>* Exchange(
      grpc::CallbackServerContext*) override {
    return new Reactor;
  }
};

class SyncService : public PingPong::Service {
  grpc::Status Exchange(grpc::ServerContext*,
                        grpc::ServerReaderWriter<Pong, Ping>* stream) override {
    Ping ping;
    Pong pong;
    while (stream->Read(&ping)) {
      if (ping.reply_bytes() > kMaxReplyBytes) return kTooLarge;
      Reply(&ping, &pong);
      if (!stream->Write(pong)) break;
    }
    return grpc::Status::OK;
  }
};

// Listens on a socket in `folder` and on a free port; null when it cannot.
std::unique_ptr<grpc::Server> Listen(const std::string& name,
                                     const std::string& folder,
                                     grpc::Service* service) {
  const std::string socket = "unix:" + folder + "/" + name;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(socket, grpc::InsecureServerCredentials());
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.SetMaxReceiveMessageSize(-1);
  builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return nullptr;
  std::cout << "unix/" << name << " " << socket << "\n"
            << "tcp/" << name << " 127.0.0.1:" << port << std::endl;
  return server;
}

int Main() {
  // As Djinn's servers do (common/daemon/daemon.cc).
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  std::string folder =
      (std::filesystem::temp_directory_path() / "ping-pong-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return 1;
  CallbackService callback_service;
  SyncService sync_service;
  const auto callback_server = Listen("callback", folder, &callback_service);
  const auto sync_server = Listen("sync", folder, &sync_service);
  const bool ok = callback_server != nullptr && sync_server != nullptr;
  char ignored;
  while (ok && read(STDIN_FILENO, &ignored, 1) > 0) {
  }
  std::filesystem::remove_all(folder);
  // There is nothing to wait for; a synchronous server's own end takes up to
  // ten seconds.
  _exit(ok ? 0 : 1);
}

}  // namespace
}  // namespace djinn::bench

int main() { return djinn::bench::Main(); }
