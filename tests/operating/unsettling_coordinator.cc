// A coordinator that bills nothing, for one worker. It listens on loopback and
// prints its address. At the first line of its standard input it begins to give
// the worker leases and to end them, COUNT in all, and never settles one. Then
// it prints "ended". It ends when its standard input does.
//
// usage: unsettling_coordinator COUNT
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/proto_duration.h"
#include "common/lease/testing/lease_authority.h"
#include "common/net/server.h"
#include "djinn/v1/worker_registry.grpc.pb.h"
#include "grpcpp/server_context.h"

namespace djinn {
namespace {

// Leases of one message.
constexpr uint64_t kLeases = 8192;

using Stream = grpc::ServerReaderWriter<v1::DesiredState, v1::WorkerState>;

// Serves one worker, in one thread.
class Registry final : public v1::WorkerRegistry::Service {
 public:
  explicit Registry(uint64_t count) : count_(count) {}

  void Begin() { begun_ = true; }

  grpc::Status Synchronize(grpc::ServerContext* /*context*/,
                           Stream* stream) override {
    v1::WorkerState state;
    uint64_t revision = 0;
    while (stream->Read(&state)) {
      // The worker acknowledges each message, and otherwise reports regularly.
      if (state.acknowledgement() && !(begun_ && ended_ < count_)) continue;
      v1::DesiredState desired;
      desired.set_revision(++revision);
      if (begun_) EndSome(state, &desired);
      if (!stream->Write(desired)) break;
    }
    return grpc::Status::OK;
  }

 private:
  // Ends the leases of the last message, and gives as many more.
  void EndSome(const v1::WorkerState& state, v1::DesiredState* desired) {
    if (ended_ == count_) return;
    for (; ended_ < given_; ++ended_) {
      desired->add_drop_session_ids(absl::StrCat("session-", ended_));
    }
    if (ended_ == count_) {
      std::cout << "ended" << std::endl;
      return;
    }
    for (; given_ < std::min(count_, ended_ + kLeases); ++given_) {
      v1::LeaseClaims claims =
          LeaseAuthority::Claims(absl::StrCat("lease-", given_),
                                 absl::StrCat("session-", given_), "tenant");
      *claims.mutable_issue_time() = ToProtoTimestamp(absl::Now());
      authority_.List(
          authority_.Issue(claims, state.worker_id(), state.incarnation()),
          desired);
    }
  }

  const uint64_t count_;
  std::atomic<bool> begun_ = false;
  uint64_t given_ = 0;
  uint64_t ended_ = 0;
  LeaseAuthority authority_;
};

int Main(int argc, char** argv) {
  if (argc != 2) return 2;
  Registry registry(std::strtoull(argv[1], nullptr, 10));
  ServerOptions options;
  options.address = "127.0.0.1:0";
  options.services = {&registry};
  const auto server = Server::Start(options);
  if (!server.ok()) {
    std::cerr << server.status() << std::endl;
    return 1;
  }
  std::cout << (*server)->address() << std::endl;
  std::string line;
  if (std::getline(std::cin, line)) registry.Begin();
  std::cin.ignore(std::numeric_limits<std::streamsize>::max());
  return 0;
}

}  // namespace
}  // namespace djinn

int main(int argc, char** argv) { return djinn::Main(argc, argv); }
