#include "common/net/unproven_connections.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/net/raw_connection.h"
#include "common/net/testing/descriptor_limit.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

// Both ends of a connection.
struct Pair {
  Socket client;
  Socket server;
  std::string peer;
};

bool IsClosed(const Pair& pair) {
  pollfd each{pair.client.fd(), POLLIN | POLLRDHUP, 0};
  return poll(&each, 1, /*timeout=*/0) > 0;
}

class UnprovenConnectionsTest : public testing::Test {
 protected:
  UnprovenConnectionsTest() : listener_(Listen("127.0.0.1:0").value()) {}

  // Connects from 127.0.0.1 or another address of the loopback.
  Pair Connect(uint32_t host = 0) {
    Pair pair;
    pair.client = MakeTcpSocket();
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK + host);
    socklen_t size = sizeof(own);
    auto* const address = reinterpret_cast<sockaddr*>(&own);
    EXPECT_EQ(bind(pair.client.fd(), address, size), 0);
    pair.client = ConnectTo(listener_.address, std::move(pair.client));
    getsockname(pair.client.fd(), address, &size);
    pair.peer =
        absl::StrCat("ipv4:127.0.0.", 1 + host, ":", ntohs(own.sin_port));
    const int listener = listener_.sockets.front().fd();
    pollfd ready{listener, POLLIN, 0};
    poll(&ready, 1, -1);
    pair.server = Socket(accept(listener, nullptr, nullptr));
    return pair;
  }

  Listener listener_;
};

TEST_F(UnprovenConnectionsTest, ClosesTheOldestOfTheHostThatHasMost) {
  UnprovenConnections connections(3);
  std::vector<Pair> pairs;
  for (const uint32_t host : {0u, 1u, 1u, 2u}) {
    pairs.push_back(Connect(host));
    EXPECT_TRUE(connections.Enter(pairs.back().server));
  }
  EXPECT_EQ(connections.size(), 3u);
  EXPECT_FALSE(IsClosed(pairs[0]));
  EXPECT_TRUE(IsClosed(pairs[1]));
  EXPECT_FALSE(IsClosed(pairs[2]));
  EXPECT_FALSE(IsClosed(pairs[3]));
  // The owner sees it, too.
  EXPECT_EQ(ReadAll(pairs[1].server), "");
}

TEST_F(UnprovenConnectionsTest, LeavesThoseAloneThatWereProven) {
  UnprovenConnections connections(1);
  const Pair first = Connect();
  const Pair second = Connect();
  const Pair third = Connect();
  EXPECT_TRUE(connections.Enter(first.server));
  connections.NoteProven("ipv4:127.0.0.9:1");
  connections.NoteProven("unix:/run/worker.sock");
  EXPECT_EQ(connections.size(), 1u);
  connections.NoteProven(first.peer);
  EXPECT_EQ(connections.size(), 0u);
  EXPECT_TRUE(connections.Enter(second.server));
  EXPECT_TRUE(connections.Enter(third.server));
  EXPECT_FALSE(IsClosed(first));
  EXPECT_TRUE(IsClosed(second));
  EXPECT_FALSE(IsClosed(third));
}

TEST_F(UnprovenConnectionsTest, ForgetsThoseThatEnded) {
  UnprovenConnections connections(2);
  const Pair stays = Connect();
  Pair goes = Connect();
  EXPECT_TRUE(connections.Enter(stays.server));
  EXPECT_TRUE(connections.Enter(goes.server));
  // The peer's end alone is no end: the owner might not notice it.
  shutdown(goes.client.fd(), SHUT_WR);
  AwaitHangUp(goes.server);
  EXPECT_EQ(connections.size(), 2u);
  shutdown(goes.server.fd(), SHUT_RDWR);
  EXPECT_EQ(connections.size(), 1u);
  // Nothing has to make room for the next one.
  const Pair next = Connect();
  EXPECT_TRUE(connections.Enter(next.server));
  EXPECT_FALSE(IsClosed(stays));
}

TEST_F(UnprovenConnectionsTest, KnowsPeersByTheNamesOfBothFamilies) {
  const auto listener = Listen("[::]:0");
  ASSERT_TRUE(listener.ok()) << listener.status();
  // A peer over IPv4 has an IPv6 address at a socket of both families.
  Socket client = ConnectTo(listener->address);
  sockaddr_in own{};
  socklen_t size = sizeof(own);
  getsockname(client.fd(), reinterpret_cast<sockaddr*>(&own), &size);
  const int fd = listener->sockets.front().fd();
  pollfd ready{fd, POLLIN, 0};
  poll(&ready, 1, -1);
  const Socket server(accept(fd, nullptr, nullptr));
  UnprovenConnections connections(8);
  EXPECT_TRUE(connections.Enter(server));
  connections.NoteProven(absl::StrCat("ipv4:127.0.0.1:", ntohs(own.sin_port)));
  EXPECT_EQ(connections.size(), 0u);

  Socket v6(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 to{};
  size = sizeof(to);
  getsockname(fd, reinterpret_cast<sockaddr*>(&to), &size);
  if (to.sin6_family != AF_INET6) GTEST_SKIP() << "this machine has no IPv6";
  to.sin6_addr = in6addr_loopback;
  if (connect(v6.fd(), reinterpret_cast<sockaddr*>(&to), size) != 0) {
    GTEST_SKIP() << "the loopback has no IPv6 address";
  }
  sockaddr_in6 from{};
  size = sizeof(from);
  getsockname(v6.fd(), reinterpret_cast<sockaddr*>(&from), &size);
  poll(&ready, 1, -1);
  const Socket accepted(accept(fd, nullptr, nullptr));
  for (const std::string host : {"%5B::1%5D", "[::1]", "%5b::1%252%5d"}) {
    EXPECT_TRUE(connections.Enter(accepted));
    EXPECT_EQ(connections.size(), 1u);
    connections.NoteProven(
        absl::StrCat("ipv6:", host, ":", ntohs(from.sin6_port)));
    EXPECT_EQ(connections.size(), 0u) << host;
  }
}

TEST_F(UnprovenConnectionsTest, RefusesWhatThereIsNoDescriptorFor) {
  UnprovenConnections connections(8);
  const Pair first = Connect();
  const Pair second = Connect();
  EXPECT_TRUE(connections.Enter(first.server));
  {
    const DescriptorLimit none(0);
    EXPECT_FALSE(connections.Enter(second.server));
  }
  // An older one was closed in vain.
  EXPECT_TRUE(IsClosed(first));
  EXPECT_EQ(connections.size(), 0u);
  EXPECT_TRUE(connections.Enter(second.server));
}

}  // namespace
}  // namespace djinn
