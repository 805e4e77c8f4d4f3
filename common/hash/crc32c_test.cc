#include "common/hash/crc32c.h"

#include <string>

#include "gtest/gtest.h"

namespace djinn {
namespace {

TEST(Crc32cTest, KnownValues) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(Crc32cTest, TableAndInstructionAgreeOnLongBytes) {
  std::string bytes;
  for (int i = 0; i < 50'000; ++i) bytes.push_back(static_cast<char>(i * i));
  for (size_t size = 6000; size <= bytes.size(); size += 997) {
    const absl::string_view all = absl::string_view(bytes).substr(0, size);
    EXPECT_EQ(internal::ExtendCrc32cByTable(17, all), ExtendCrc32c(17, all))
        << size;
  }
}

TEST(Crc32cTest, TableAndInstructionAgreeAtEveryLengthAndSplit) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) bytes.push_back(static_cast<char>(i * 37));
  for (size_t size = 0; size <= bytes.size(); ++size) {
    const absl::string_view all = absl::string_view(bytes).substr(0, size);
    const uint32_t whole = Crc32c(all);
    EXPECT_EQ(internal::ExtendCrc32cByTable(0, all), whole) << size;
    const size_t half = size / 3;
    EXPECT_EQ(ExtendCrc32c(Crc32c(all.substr(0, half)), all.substr(half)),
              whole)
        << size;
  }
}

}  // namespace
}  // namespace djinn
