#include "tests/bench/raw_socket_peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "common/status_macros.h"
#include "tests/bench/fill.h"
#include "tests/bench/raw_socket.h"
#include "tests/bench/stopwatch.h"

namespace djinn::bench {
namespace {

absl::Status Broken() { return absl::UnavailableError("the raw socket broke"); }

// Fresh memory for the length of a scope.
class FreshMemory {
 public:
  explicit FreshMemory(size_t size) : bytes_(MapFresh(size)), size_(size) {}
  ~FreshMemory() {
    if (bytes_ != nullptr) Unmap(bytes_, size_);
  }
  FreshMemory(const FreshMemory&) = delete;
  FreshMemory& operator=(const FreshMemory&) = delete;

  void* bytes() const { return bytes_; }

 private:
  void* const bytes_;
  const size_t size_;
};

bool Expect(int socket, char expected) {
  char got;
  return ReceiveAll(socket, &got, 1) && got == expected;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RawSocketPeer>> RawSocketPeer::Start() {
  DJINN_ASSIGN_OR_RETURN(
      auto server,
      ChildProcess::Start(SiblingProgram("raw_socket_server"), {}));
  DJINN_ASSIGN_OR_RETURN(const std::string line, server->ReadLine());
  int port = 0;
  if (!absl::SimpleAtoi(line, &port)) return Broken();
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(connection, reinterpret_cast<sockaddr*>(&address),
              sizeof(address)) != 0) {
    const absl::Status status = absl::ErrnoToStatus(errno, "connect");
    close(connection);
    return status;
  }
  const int on = 1;
  setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return std::unique_ptr<RawSocketPeer>(
      new RawSocketPeer(std::move(server), connection));
}

RawSocketPeer::~RawSocketPeer() { close(socket_); }

absl::StatusOr<double> RawSocketPeer::Upload(uint64_t seed, size_t size) {
  const FreshMemory memory(size);
  if (memory.bytes() == nullptr) return Broken();
  Fill(seed, memory.bytes(), size);
  const RawRequest request = {.up = 1, .size = size, .seed = seed};
  if (!SendAll(socket_, &request, sizeof(request)) ||
      !Expect(socket_, kReady)) {
    return Broken();
  }
  const double start = WallNow();
  if (!SendAll(socket_, memory.bytes(), size) || !Expect(socket_, kDone)) {
    return Broken();
  }
  const double seconds = WallNow() - start;
  if (!Expect(socket_, kDone)) {
    return absl::DataLossError("the raw socket's server got other bytes");
  }
  return seconds;
}

absl::StatusOr<double> RawSocketPeer::Download(uint64_t seed, size_t size) {
  const FreshMemory memory(size);
  if (memory.bytes() == nullptr) return Broken();
  const RawRequest request = {.up = 0, .size = size, .seed = seed};
  if (!SendAll(socket_, &request, sizeof(request)) ||
      !Expect(socket_, kReady)) {
    return Broken();
  }
  const double start = WallNow();
  if (!SendAll(socket_, &kReady, 1) ||
      !ReceiveAll(socket_, memory.bytes(), size)) {
    return Broken();
  }
  const double seconds = WallNow() - start;
  if (!IsFilled(seed, memory.bytes(), size)) {
    return absl::DataLossError("the raw socket's client got other bytes");
  }
  return seconds;
}

}  // namespace djinn::bench
