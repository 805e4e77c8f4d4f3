#include "common/hash/content_proof.h"

#include <string>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

const std::string kKey(kContentKeyBytes, '\0');

TEST(ContentProofTest, IsGmac) {
  // Test case 1 of the GCM specification: nothing at all under a zero key.
  EXPECT_EQ(absl::BytesToHexString(ProveContent(kKey, "")),
            "58e2fccefa7e3061367f1d57a4e7455a");
}

TEST(ContentProofTest, PiecesMakeTheWhole) {
  std::string bytes(100'003, 'x');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  const absl::string_view view = bytes;
  ContentMac mac("0123456789abcdef");
  mac.Add(view.substr(0, 1));
  mac.Add("");
  mac.Add(view.substr(1, 4095));
  mac.Add(view.substr(4096));
  const std::string whole = ProveContent("0123456789abcdef", bytes);
  EXPECT_EQ(whole.size(), kContentMacBytes);
  EXPECT_EQ(mac.Finish(), whole);
}

TEST(ContentProofTest, DependsOnKeyLengthAndEveryByte) {
  const std::string bytes(1000, 'x');
  const std::string mac = ProveContent(kKey, bytes);
  EXPECT_NE(ProveContent("0123456789abcdef", bytes), mac);
  EXPECT_NE(ProveContent(kKey, bytes + std::string(1, '\0')), mac);
  EXPECT_NE(ProveContent(kKey, absl::string_view(bytes).substr(1)), mac);
  for (const size_t at : {0, 500, 999}) {
    std::string changed = bytes;
    changed[at] ^= 1;
    EXPECT_NE(ProveContent(kKey, changed), mac) << at;
  }
}

TEST(ContentProofTest, AKeyOfAnotherSizeProvesNothing) {
  EXPECT_EQ(ProveContent("short", "bytes"), "");
}

}  // namespace
}  // namespace djinn
