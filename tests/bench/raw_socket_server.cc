// The far end of a raw TCP socket: the floor for moving bytes. Prints its port,
// serves one connection and ends with it, or with its standard input.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <iostream>

#include "tests/bench/fill.h"
#include "tests/bench/raw_socket.h"

namespace djinn::bench {
namespace {

bool TakeUpload(int peer, const RawRequest& request, void* bytes) {
  if (!SendAll(peer, &kReady, 1) || !ReceiveAll(peer, bytes, request.size) ||
      !SendAll(peer, &kDone, 1)) {
    return false;
  }
  const char verdict =
      IsFilled(request.seed, bytes, request.size) ? kDone : kWrong;
  return SendAll(peer, &verdict, 1);
}

bool GiveDownload(int peer, const RawRequest& request, void* bytes) {
  Fill(request.seed, bytes, request.size);
  char go;
  return SendAll(peer, &kReady, 1) && ReceiveAll(peer, &go, 1) &&
         SendAll(peer, bytes, request.size);
}

// Serves requests until the peer is gone.
void Serve(int peer) {
  RawRequest request;
  while (ReceiveAll(peer, &request, sizeof(request))) {
    void* bytes = MapFresh(request.size);
    if (bytes == nullptr) return;
    const bool ok = request.up != 0 ? TakeUpload(peer, request, bytes)
                                    : GiveDownload(peer, request, bytes);
    Unmap(bytes, request.size);
    if (!ok) return;
  }
}

int Main() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener, generic, length) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, generic, &length) != 0) {
    return 1;
  }
  std::cout << ntohs(address.sin_port) << std::endl;

  // Whatever comes first: a connection, or the end of the parent.
  pollfd waited[] = {{.fd = listener, .events = POLLIN, .revents = 0},
                     {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0}};
  if (poll(waited, 2, -1) < 0 || waited[0].revents == 0) return 1;
  const int peer = accept(listener, nullptr, nullptr);
  if (peer < 0) return 1;
  const int on = 1;
  setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  Serve(peer);
  return 0;
}

}  // namespace
}  // namespace djinn::bench

int main() { return djinn::bench::Main(); }
