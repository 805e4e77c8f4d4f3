#include "common/net/channel_pool.h"

#include <chrono>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/patience.h"
#include "common/net/server.h"
#include "common/net/testing/authority.h"
#include "gtest/gtest.h"

namespace djinn {

bool operator==(const ChannelPool::Counts& a, const ChannelPool::Counts& b) {
  return a.created == b.created && a.reused == b.reused &&
         a.closed == b.closed && a.failed == b.failed;
}
void PrintTo(const ChannelPool::Counts& counts, std::ostream* out) {
  *out << counts.created << " created, " << counts.reused << " reused, "
       << counts.closed << " closed, " << counts.failed << " failed";
}

namespace {

using Counts = ChannelPool::Counts;
using ChannelPointer = std::shared_ptr<grpc::Channel>;

std::chrono::system_clock::time_point Soon() {
  return std::chrono::system_clock::now() +
         absl::ToChronoSeconds(Patience::kLong);
}

// Waits until the channel has this state.
void WaitFor(grpc_connectivity_state wanted, grpc::Channel* channel) {
  for (Patience patience;;) {
    const grpc_connectivity_state state = channel->GetState(true);
    if (state == wanted) return;
    ASSERT_TRUE(channel->WaitForStateChange(state, Soon()));
    patience.Left();
  }
}

class ChannelPoolTest : public testing::Test {
 protected:
  static std::unique_ptr<Server> Start(const std::string& address,
                                       const ServerTls& tls = {}) {
    ServerOptions options;
    options.address = address;
    options.tls = tls;
    return *Server::Start(options);
  }

  // Takes a channel and connects it.
  ChannelPointer Take(ChannelPool* pool, const ChannelOptions& options = {}) {
    return Take(pool, server_->address(), options);
  }
  static ChannelPointer Take(ChannelPool* pool, const std::string& address,
                             const ChannelOptions& options) {
    ChannelPointer channel = *pool->Take(address, options);
    WaitFor(GRPC_CHANNEL_READY, channel.get());
    return channel;
  }

  FakeClock clock_;
  ChannelPool pool_{{}, &clock_};
  std::unique_ptr<Server> server_ = Start("127.0.0.1:0");
};

TEST_F(ChannelPoolTest, TheNextUserFindsAChannelConnected) {
  ChannelPointer channel = Take(&pool_);
  const grpc::Channel* const first = channel.get();
  EXPECT_EQ(pool_.counts(), (Counts{.created = 1}));
  channel.reset();
  channel = *pool_.Take(server_->address(), {});
  EXPECT_EQ(channel.get(), first);
  EXPECT_EQ(channel->GetState(false), GRPC_CHANNEL_READY);
  EXPECT_EQ(pool_.counts(), (Counts{.created = 1, .reused = 1}));
}

TEST_F(ChannelPoolTest, AChannelIsOneUsersUntilTheLastCopyIsGone) {
  ChannelPointer first = Take(&pool_);
  ChannelPointer copy = first;
  first.reset();
  const ChannelPointer second = Take(&pool_);
  EXPECT_NE(copy, second);
  copy.reset();
  EXPECT_NE(Take(&pool_), second);
  EXPECT_EQ(pool_.counts(), (Counts{.created = 2, .reused = 1}));
}

TEST_F(ChannelPoolTest, SeveralUsersMayShareOne) {
  ChannelPool pool({.max_users = 2}, &clock_);
  // The second user does not wait until the channel is connected.
  const ChannelPointer first = *pool.Take(server_->address(), {});
  const ChannelPointer second = Take(&pool);
  const ChannelPointer third = Take(&pool);
  EXPECT_EQ(first, second);
  EXPECT_NE(first, third);
  EXPECT_EQ(Take(&pool), third);
  EXPECT_EQ(pool.counts(), (Counts{.created = 2, .reused = 2}));
}

TEST_F(ChannelPoolTest, OthersHaveChannelsOfTheirOwn) {
  const std::unique_ptr<Server> other = Start("127.0.0.1:0");
  const ChannelSecurity anywhere = *ChannelSecurity::Make({}, true);
  Take(&pool_);
  Take(&pool_, {{}, /*connection=*/1});
  Take(&pool_, {anywhere, /*connection=*/0});
  Take(&pool_, other->address(), {});
  EXPECT_EQ(pool_.counts(), (Counts{.created = 4}));
}

TEST_F(ChannelPoolTest, CredentialsAreWhatTheFilesHold) {
  Authority authority("pool");
  ServerTls tls = authority.Issue("server");
  tls.client_ca_file = authority.ca_file();
  const std::unique_ptr<Server> server = Start("127.0.0.1:0", tls);
  const auto take = [&](const ChannelSecurity& security) {
    Take(&pool_, server->address(), {security, 0});
  };
  const ChannelTls ours = authority.IssueForChannel("client");
  take(*ChannelSecurity::Make(ours, false));
  // The next session makes the same credentials.
  take(*ChannelSecurity::Make(ours, false));
  EXPECT_EQ(pool_.counts(), (Counts{.created = 1, .reused = 1}));
  // The same server has another name in its certificate.
  take(ChannelSecurity::Make(ours, false)->WithServerName("localhost"));
  EXPECT_EQ(pool_.counts().created, 2u);
  // Another client has other credentials.
  take(*ChannelSecurity::Make(authority.IssueForChannel("other"), false));
  EXPECT_EQ(pool_.counts().created, 3u);
  // The same files have another certificate.
  authority.IssueForChannel("client");
  take(*ChannelSecurity::Make(ours, false));
  EXPECT_EQ(pool_.counts(), (Counts{.created = 4, .reused = 1}));
  take(*ChannelSecurity::Make(ours, false));
  EXPECT_EQ(pool_.counts(), (Counts{.created = 4, .reused = 2}));
}

TEST_F(ChannelPoolTest, FewWaitForOneAddress) {
  ChannelPool pool({.max_idle_per_address = 2}, &clock_);
  const std::unique_ptr<Server> other = Start("127.0.0.1:0");
  Take(&pool, other->address(), {});
  const auto take_three = [&] {
    std::vector<ChannelPointer> taken;
    for (int i = 0; i < 3; ++i) taken.push_back(Take(&pool));
  };
  take_three();
  EXPECT_EQ(pool.counts(), (Counts{.created = 4, .closed = 1}));
  take_three();
  EXPECT_EQ(pool.counts(), (Counts{.created = 5, .reused = 2, .closed = 2}));
}

TEST_F(ChannelPoolTest, LeastRecentlyUsedIdleChannelCloses) {
  ChannelPool pool({.max_idle = 2}, &clock_);
  std::vector<ChannelPointer> taken;
  for (int i = 0; i < 3; ++i) taken.push_back(Take(&pool, {{}, i}));
  for (const int i : {1, 0, 2}) taken[i].reset();
  EXPECT_EQ(pool.counts(), (Counts{.created = 3, .closed = 1}));
  Take(&pool, {{}, 2});
  Take(&pool, {{}, 0});
  EXPECT_EQ(pool.counts(), (Counts{.created = 3, .reused = 2, .closed = 1}));
}

TEST_F(ChannelPoolTest, ChannelClosesAfterTheIdleTimeout) {
  const absl::Duration timeout = ChannelPool::kIdleTimeout;
  Take(&pool_);
  clock_.Advance(timeout - absl::Seconds(1));
  ChannelPointer channel = Take(&pool_);
  EXPECT_EQ(pool_.counts(), (Counts{.created = 1, .reused = 1}));
  // A channel in use does not wait.
  clock_.Advance(timeout);
  channel.reset();
  clock_.Advance(timeout - absl::Seconds(1));
  channel = Take(&pool_);
  EXPECT_EQ(pool_.counts(), (Counts{.created = 1, .reused = 2}));
  channel.reset();
  clock_.Advance(timeout);
  Take(&pool_);
  EXPECT_EQ(pool_.counts(), (Counts{.created = 2, .reused = 2, .closed = 1}));
}

TEST_F(ChannelPoolTest, AServerThatStartsAgainGetsNewConnections) {
  // Unlike a port, no other process takes the path meanwhile.
  char folder[] = "/tmp/djinn-pool-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string address = absl::StrCat("unix:", folder, "/socket");
  std::unique_ptr<Server> server = Start(address);
  // The pool keeps the channel until the pool is used again.
  grpc::Channel* const waiting = Take(&pool_, address, {}).get();
  server->Shutdown(absl::ZeroDuration());
  server.reset();
  ASSERT_TRUE(waiting->WaitForStateChange(GRPC_CHANNEL_READY, Soon()));
  server = Start(address);
  Take(&pool_, address, {});
  EXPECT_EQ(pool_.counts(), (Counts{.created = 2, .closed = 1}));
}

TEST_F(ChannelPoolTest, FailedChannelIsNotShared) {
  ChannelPool pool({.max_users = 2}, &clock_);
  const auto take = [&] { return *pool.Take("unix:/no/such/socket", {}); };
  ChannelPointer first = take();
  WaitFor(GRPC_CHANNEL_TRANSIENT_FAILURE, first.get());
  const ChannelPointer second = take();
  EXPECT_NE(first, second);
  first.reset();
  EXPECT_EQ(pool.counts(), (Counts{.created = 2, .failed = 1}));
}

TEST_F(ChannelPoolTest, DistrustedChannelIsNotReused) {
  const std::unique_ptr<Server> other = Start("127.0.0.1:0");
  Take(&pool_, other->address(), {});
  ChannelPointer older = Take(&pool_);
  ChannelPointer broken = Take(&pool_);
  ChannelPointer newer = Take(&pool_);
  older.reset();
  pool_.Distrust(*broken);
  EXPECT_EQ(pool_.counts(), (Counts{.created = 4, .failed = 1}));
  broken.reset();
  EXPECT_EQ(pool_.counts(), (Counts{.created = 4, .failed = 2}));
  // This channel was made when the peer may have been back.
  newer.reset();
  Take(&pool_);
  Take(&pool_, other->address(), {});
  EXPECT_EQ(pool_.counts(), (Counts{.created = 4, .reused = 2, .failed = 2}));
}

TEST_F(ChannelPoolTest, AUserMayOutliveThePool) {
  auto pool = std::make_unique<ChannelPool>(ChannelPool::Options(), &clock_);
  ChannelPointer channel = Take(pool.get());
  pool.reset();
  EXPECT_EQ(channel->GetState(false), GRPC_CHANNEL_READY);
  channel.reset();
}

TEST_F(ChannelPoolTest, AnAddressThatIsRefusedCountsForNothing) {
  EXPECT_EQ(ErrorReason(pool_.Take("10.0.0.1:80", {}).status()),
            "INSECURE_ADDRESS");
  EXPECT_EQ(pool_.counts(), Counts());
}

}  // namespace
}  // namespace djinn
