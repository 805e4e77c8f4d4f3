#include "client_lib/session/device/outgoing/host_values.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"

namespace djinn {
namespace {

class Fixed final : public HostValue {
 public:
  explicit Fixed(const std::string& bytes)
      : bytes_(std::make_shared<const std::string>(bytes)) {}
  HostBytes Bytes() const override { return bytes_; }

 private:
  const HostBytes bytes_;
};

HostValuePtr Bytes(const std::string& bytes) {
  return std::make_shared<const Fixed>(bytes);
}

TEST(HostValuesTest, AreOfOneVersion) {
  HostValues values;
  values.Keep({7, 1, 2}, Bytes("ab"), /*readable=*/false);
  ASSERT_NE(values.Find({7, 1, 2}), nullptr);
  EXPECT_EQ(*values.Find({7, 1, 2})->Bytes(), "ab");
  EXPECT_EQ(values.Find({7, 2, 2}), nullptr);
  EXPECT_EQ(values.Find({8, 1, 2}), nullptr);
  EXPECT_EQ(values.Find({7, 1, 3}), nullptr);
}

TEST(HostValuesTest, SomeMayBeRead) {
  HostValues values;
  values.Keep({7, 1, 2}, Bytes("ab"), /*readable=*/false);
  EXPECT_EQ(values.FindReadable({7, 1, 2}), nullptr);
  values.Keep({8, 1, 2}, Bytes("cd"), /*readable=*/true);
  EXPECT_EQ(*values.FindReadable({8, 1, 2})->Bytes(), "cd");
  EXPECT_EQ(*values.Find({8, 1, 2})->Bytes(), "cd");
  values.Clear();
  EXPECT_EQ(values.Find({8, 1, 2}), nullptr);
}

TEST(HostValuesTest, TheOnesUsedLastAreKept) {
  HostValues values;
  for (uint64_t id = 1; id <= HostValues::kMaxKept; ++id) {
    values.Keep({id, 1, 1}, Bytes("x"), /*readable=*/false);
  }
  EXPECT_NE(values.Find({1, 1, 1}), nullptr);
  values.Keep({100, 1, 1}, Bytes("y"), /*readable=*/true);
  EXPECT_EQ(values.Find({2, 1, 1}), nullptr);
  EXPECT_NE(values.Find({1, 1, 1}), nullptr);
  EXPECT_NE(values.Find({3, 1, 1}), nullptr);
  EXPECT_NE(values.Find({100, 1, 1}), nullptr);
}

TEST(HostValuesTest, LargeAndEmptyOnesAreNotKept) {
  HostValues values;
  const std::string most(HostValues::kMaxBytes, 'm');
  values.Keep({1, 1, most.size()}, Bytes(most), /*readable=*/true);
  values.Keep({2, 1, most.size() + 1}, Bytes(most + "m"), /*readable=*/true);
  values.Keep({4, 1, 0}, Bytes(""), /*readable=*/true);
  EXPECT_NE(values.Find({1, 1, most.size()}), nullptr);
  EXPECT_EQ(values.Find({2, 1, most.size() + 1}), nullptr);
  EXPECT_EQ(values.Find({4, 1, 0}), nullptr);
}

}  // namespace
}  // namespace djinn
