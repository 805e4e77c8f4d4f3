#include "client_lib/session/transfer/peer_links.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

constexpr absl::Duration kNow = absl::Hours(1);

TEST(PeerLinksTest, TheLatestCounts) {
  PeerLinks links;
  EXPECT_EQ(links.BytesPerSecond("w0", kNow), 0);
  links.Note("w0", 1e9, kNow);
  links.Note("w1", 3e9, kNow);
  links.Note("w0", 2e9, kNow);
  EXPECT_EQ(links.BytesPerSecond("w0", kNow), 2e9);
  EXPECT_EQ(links.BytesPerSecond("w1", kNow), 3e9);
}

TEST(PeerLinksTest, OldLinkMeasurementIsForgotten) {
  PeerLinks links;
  links.Note("w0", 1e9, kNow);
  EXPECT_EQ(links.BytesPerSecond("w0", kNow + PeerLinks::kMemory), 1e9);
  EXPECT_EQ(links.BytesPerSecond(
                "w0", kNow + PeerLinks::kMemory + absl::Nanoseconds(1)),
            0);
}

TEST(PeerLinksTest, KeepsABoundedNumber) {
  PeerLinks links;
  for (size_t i = 0; i < PeerLinks::kMaxLinks; ++i) {
    links.Note(absl::StrCat("w", i), 1e9, kNow);
  }
  links.Note("w0", 2e9, kNow);  // a known link evicts nothing
  EXPECT_EQ(links.BytesPerSecond("w1", kNow), 1e9);
  links.Note("new", 1e9, kNow);
  EXPECT_EQ(links.BytesPerSecond("w1", kNow), 0);
  EXPECT_EQ(links.BytesPerSecond("new", kNow), 1e9);
}

}  // namespace
}  // namespace djinn
