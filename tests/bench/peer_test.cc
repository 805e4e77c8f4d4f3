// The floors themselves: do they carry what they claim to?
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/bench/fill.h"
#include "tests/bench/futex_ping_pong.h"
#include "tests/bench/ping_pong_peer.h"
#include "tests/bench/raw_socket_peer.h"

namespace djinn::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(FillTest, IsRecognised) {
  std::vector<uint64_t> words(1000);
  Fill(7, words.data(), words.size() * 8);
  EXPECT_TRUE(IsFilled(7, words.data(), words.size() * 8));
}

TEST(FillTest, AnotherSeedOrOneWrongByteIsSeen) {
  std::vector<uint64_t> words(1000);
  Fill(7, words.data(), words.size() * 8);
  EXPECT_FALSE(IsFilled(8, words.data(), words.size() * 8));
  words[999] ^= 1;
  EXPECT_FALSE(IsFilled(7, words.data(), words.size() * 8));
}

TEST(PingPongPeerTest, AnswersOnEveryAddress) {
  const auto peer = PingPongPeer::Start();
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_THAT((*peer)->streams(), ElementsAre(Pair("tcp/callback", testing::_),
                                              Pair("tcp/sync", testing::_),
                                              Pair("unix/callback", testing::_),
                                              Pair("unix/sync", testing::_)));
  for (auto& [name, stream] : (*peer)->streams()) {
    std::vector<double> seconds;
    // Shorter and longer answers than questions.
    EXPECT_TRUE(stream->Exchange(200, 10, 20, &seconds).ok()) << name;
    EXPECT_TRUE(stream->Exchange(10, 5'000'000, 2, &seconds).ok()) << name;
    EXPECT_EQ(seconds.size(), 22);
    EXPECT_FALSE(stream->Exchange(0, 1, 1, &seconds).ok()) << name;
  }
}

TEST(FutexPingPongTest, GoesThereAndBack) {
  const auto peer = FutexPingPong::Start();
  ASSERT_TRUE(peer.ok()) << peer.status();
  std::vector<double> seconds;
  EXPECT_TRUE((*peer)->Exchange(50, &seconds).ok());
  EXPECT_EQ(seconds.size(), 50);
}

TEST(RawSocketPeerTest, MovesBytesBothWays) {
  const auto peer = RawSocketPeer::Start();
  ASSERT_TRUE(peer.ok()) << peer.status();
  for (const size_t size : {size_t{8}, size_t{3} << 20}) {
    const auto up = (*peer)->Upload(3, size);
    ASSERT_TRUE(up.ok()) << up.status();
    EXPECT_GT(*up, 0);
    const auto down = (*peer)->Download(4, size);
    ASSERT_TRUE(down.ok()) << down.status();
    EXPECT_GT(*down, 0);
  }
}

}  // namespace
}  // namespace djinn::bench
