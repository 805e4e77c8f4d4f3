// Tests that a path which silently drops bytes is noticed.
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/net/bounded_call.h"
#include "common/net/channel_options.h"
#include "common/net/server.h"
#include "gtest/gtest.h"
#include "tests/chaos/fault_proxy.h"

namespace djinn {
namespace {

// A client of a server's health behind a network. Its stream is idle.
class SilenceTest : public testing::Test {
 protected:
  SilenceTest()
      : folder_(MakeFolder()),
        server_(*Server::Start({absl::StrCat("unix:", folder_, "/server")})),
        network_(folder_ + "/network", folder_ + "/server") {}
  ~SilenceTest() override { server_->Shutdown(absl::ZeroDuration()); }

  static std::string MakeFolder() {
    // Short, because a socket's path is.
    std::string folder = "/tmp/silence_XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) std::abort();
    return folder;
  }
  // Returns the time until the client notices that the network is frozen.
  absl::Duration Notice(absl::Duration silence) {
    ChannelOptions options;
    options.silence = silence;
    BoundedCall call(
        *MakeChannel(absl::StrCat("unix:", folder_, "/network"), options),
        "/grpc.health.v1.Health/Watch");
    const grpc::Slice everything("");
    EXPECT_TRUE(call.Write({&everything, 1}));
    std::vector<grpc::Slice> message;
    EXPECT_TRUE(call.Read(&message));
    // A path that only rests is none that drops bytes.
    absl::SleepFor(silence * 1.5);
    network_.Freeze(true);
    const absl::Time frozen = absl::Now();
    EXPECT_FALSE(call.Read(&message));
    EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
    const absl::Duration taken = absl::Now() - frozen;
    network_.Heal();
    return taken;
  }

  const std::string folder_;
  const std::unique_ptr<Server> server_;
  FaultProxy network_;
};

TEST_F(SilenceTest, AnIdleStreamOverAPathThatDropsBytesEndsSoon) {
  EXPECT_LE(Notice(kDefaultSilence), kDefaultSilence + absl::Seconds(2));
}

TEST_F(SilenceTest, TheSilenceIsConfigurable) {
  const absl::Duration taken = Notice(2 * kDefaultSilence);
  EXPECT_GE(taken, kDefaultSilence);
  EXPECT_LE(taken, 2 * kDefaultSilence + absl::Seconds(2));
}

}  // namespace
}  // namespace djinn
