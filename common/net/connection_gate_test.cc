#include "common/net/connection_gate.h"

#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/net/raw_connection.h"
#include "common/net/testing/descriptor_limit.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

// A gate that answers "!" to what is complete: bytes that end with ".".
class ConnectionGateTest : public testing::Test {
 protected:
  void Start(ConnectionGate::Options options) {
    auto listener = Listen("127.0.0.1:0");
    ASSERT_TRUE(listener.ok()) << listener.status();
    address_ = listener->address;
    options.judge = [](absl::string_view bytes) {
      if (bytes.front() == '?') return ConnectionGate::Verdict::kWrong;
      return bytes.back() == '.' ? ConnectionGate::Verdict::kComplete
                                 : ConnectionGate::Verdict::kIncomplete;
    };
    options.take = [this](Socket socket) {
      std::string bytes(100, ' ');
      const ssize_t size = recv(socket.fd(), bytes.data(), bytes.size(), 0);
      gate_->Send(std::move(socket),
                  "!" + bytes.substr(0, static_cast<size_t>(size)));
    };
    gate_ = std::make_unique<ConnectionGate>(std::move(listener->sockets),
                                             std::move(options));
  }

  static void Say(const Socket& connection, const std::string& what) {
    ASSERT_EQ(send(connection.fd(), what.data(), what.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(what.size()));
  }

  std::string Ask(const std::string& what) {
    const Socket connection = ConnectTo(address_);
    Say(connection, what);
    return ReadAll(connection);
  }

  std::string address_;
  std::unique_ptr<ConnectionGate> gate_;
};

TEST_F(ConnectionGateTest, PassesAConnectionOnWithAllOfItsBytes) {
  Start({});
  EXPECT_EQ(Ask("ab."), "!ab.");
  const Socket slow = ConnectTo(address_);
  for (const char* each : {"a", "b", "c"}) {
    Say(slow, each);
    EXPECT_EQ(Ask("x."), "!x.");
  }
  Say(slow, ".");
  EXPECT_EQ(ReadAll(slow), "!abc.");
}

TEST_F(ConnectionGateTest, ClosesWhatIsWrongTooLongOrTooLate) {
  ConnectionGate::Options options;
  options.first_bytes_timeout = absl::Milliseconds(50);
  Start(std::move(options));
  EXPECT_EQ(Ask("?."), "");
  EXPECT_EQ(Ask(""), "");
  EXPECT_EQ(Ask("a"), "");
  EXPECT_EQ(Ask(std::string(ConnectionGate::kMaxFirstBytes, 'a')), "");
}

TEST_F(ConnectionGateTest, FullGateClosesTheOldestSilentConnection) {
  ConnectionGate::Options options;
  options.max_connections = 3;
  options.first_bytes_timeout = absl::Hours(1);
  Start(std::move(options));
  std::vector<Socket> silent;
  for (int i = 0; i < 3; ++i) silent.push_back(ConnectTo(address_));
  // The gate has accepted all three when it answers this one.
  EXPECT_EQ(Ask("x."), "!x.");
  EXPECT_EQ(ReadAll(silent[0]), "");
  for (int i : {1, 2}) {
    Say(silent[i], ".");
    EXPECT_EQ(ReadAll(silent[i]), "!.");
  }
}

TEST_F(ConnectionGateTest, FullGateClosesAConnectionOfTheHostThatHasMost) {
  ConnectionGate::Options options;
  options.max_connections = 3;
  options.first_bytes_timeout = absl::Hours(1);
  Start(std::move(options));
  // The only connection of its host is the oldest of all.
  const Socket lone = ConnectTo(address_);
  const auto connect_from_another_host = [this] {
    Socket socket = MakeTcpSocket();
    sockaddr_in host{};
    host.sin_family = AF_INET;
    host.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    EXPECT_EQ(
        bind(socket.fd(), reinterpret_cast<sockaddr*>(&host), sizeof(host)), 0);
    return ConnectTo(address_, std::move(socket));
  };
  const Socket older = connect_from_another_host();
  const Socket younger = connect_from_another_host();
  EXPECT_EQ(Ask("x."), "!x.");
  EXPECT_EQ(ReadAll(older), "");
  for (const Socket* const stays : {&lone, &younger}) {
    Say(*stays, ".");
    EXPECT_EQ(ReadAll(*stays), "!.");
  }
}

TEST_F(ConnectionGateTest, AnswersWhileDescriptorsRunOut) {
  ConnectionGate::Options options;
  options.max_connections = 1 << 20;
  options.first_bytes_timeout = absl::Hours(1);
  Start(std::move(options));
  std::vector<Socket> silent;
  for (int i = 0; i < 2; ++i) silent.push_back(ConnectTo(address_));
  // The gate has accepted both when it answers this one.
  EXPECT_EQ(Ask("x."), "!x.");
  Socket late = MakeTcpSocket();
  // Both ends of the connections are in this process, which runs out of
  // descriptors.
  const DescriptorLimit limit(200);
  std::vector<Socket> others;
  do {
    others.emplace_back(dup(late.fd()));
  } while (others.back().fd() >= 0);
  const Socket asker = ConnectTo(address_, std::move(late));
  Say(asker, "y.");
  EXPECT_EQ(ReadAll(asker), "!y.");
  EXPECT_EQ(ReadAll(silent[0]), "");
  Say(silent[1], ".");
  EXPECT_EQ(ReadAll(silent[1]), "!.");
}

TEST(ListenTest, AllAddressesAreThoseOfBothFamilies) {
  for (const std::string host : {"0.0.0.0", "[::]"}) {
    const auto listener = Listen(host + ":0");
    ASSERT_TRUE(listener.ok()) << listener.status();
    EXPECT_GE(ConnectTo(listener->address).fd(), 0) << host;
  }
}

TEST(ListenTest, NamesAnAddressThatIsInUse) {
  const auto first = Listen("127.0.0.1:0");
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = Listen(first->address).status();
  EXPECT_EQ(ErrorReason(second), "CANNOT_LISTEN");
  EXPECT_NE(second.message().find(first->address), std::string::npos);
}

}  // namespace
}  // namespace djinn
