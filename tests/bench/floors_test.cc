#include "tests/bench/floors.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace djinn::bench {
namespace {

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

TEST(GrpcPingPongTest, AnswersOnEveryAddress) {
  for (const std::string& address :
       {std::string("127.0.0.1:0"),
        // Relative, because a socket's path has at most 107 bytes.
        std::string("unix:echo.sock")}) {
    const auto stream = GrpcPingPong::Start(address);
    ASSERT_TRUE(stream.ok()) << stream.status();
    std::vector<double> seconds;
    // Answers may be shorter and longer than requests.
    EXPECT_TRUE((*stream)->Exchange(200, 10, 20, &seconds).ok()) << address;
    EXPECT_TRUE((*stream)->Exchange(10, 5'000'000, 2, &seconds).ok())
        << address;
    EXPECT_EQ(seconds.size(), 22);
    EXPECT_FALSE((*stream)->Exchange(0, 8, 1, &seconds).ok()) << address;
  }
}

TEST(RawSocketTest, MovesBytes) {
  const auto peer = RawSocket::Start();
  ASSERT_TRUE(peer.ok()) << peer.status();
  for (const size_t size : {size_t{8}, size_t{3} << 20}) {
    const auto seconds = (*peer)->Move(3, size);
    ASSERT_TRUE(seconds.ok()) << seconds.status();
    EXPECT_GT(*seconds, 0);
  }
}

}  // namespace
}  // namespace djinn::bench
