#include "common/hash/hash.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

TEST(HashSampleTest, IsTheCanonicalHashOfASmallValue) {
  // XXH3-128 of nothing.
  EXPECT_EQ(absl::BytesToHexString(HashSample("")),
            "99aa06d3014798d86001c324468d497f");
  const ContentHash hash = HashContent("abc", 3);
  std::string bytes;
  for (const uint64_t half : {hash.high, hash.low}) {
    for (int shift = 56; shift >= 0; shift -= 8) {
      bytes.push_back(static_cast<char>(half >> shift));
    }
  }
  EXPECT_EQ(HashSample("abc"), bytes);
}

TEST(HashSampleTest, SeesEachByteUpToItsLimit) {
  std::string value(64 << 10, 'x');
  const std::string before = HashSample(value);
  for (const size_t at : {0, 1, 4095, 30'000, (64 << 10) - 1}) {
    value[at] = 'y';
    EXPECT_NE(HashSample(value), before) << at;
    value[at] = 'x';
  }
}

TEST(HashSampleTest, SeesTheEndsAndOneInSoManyBytesOfALargeValue) {
  std::string value(1 << 20, 'x');
  const std::string before = HashSample(value);
  for (const size_t at : {size_t{0}, value.size() - 1}) {
    value[at] = 'y';
    EXPECT_NE(HashSample(value), before) << at;
    value[at] = 'x';
  }
  // Blocks are 16,628 bytes apart, so that each stretch of this size has one.
  for (size_t begin = 0; begin + 17'000 <= value.size(); begin += 17'000) {
    value.replace(begin, 17'000, 17'000, 'y');
    EXPECT_NE(HashSample(value), before) << begin;
    value.replace(begin, 17'000, 17'000, 'x');
  }
  EXPECT_EQ(HashSample(value), before);
}

}  // namespace
}  // namespace djinn
