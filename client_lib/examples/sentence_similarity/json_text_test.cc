#include "client_lib/examples/sentence_similarity/json_text.h"

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::examples {
namespace {

using ::testing::HasSubstr;

TEST(ParseJsonObjectTest, ReadsAnObject) {
  auto object = ParseJsonObject(R"( {"a": [1, 2], "b": {"c": "d"}}  )");
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ(object->at("a").at(1), 2);
  EXPECT_EQ(object->at("b").at("c"), "d");
}

TEST(ParseJsonObjectTest, SameKeyInDifferentObjectsIsFine) {
  EXPECT_TRUE(ParseJsonObject(R"({"a": {"x": 1}, "b": {"x": 2}})").ok());
}

struct BadText {
  std::string text;
  std::string complaint;
};

TEST(ParseJsonObjectTest, RefusesWithTheReason) {
  const std::string deep =
      R"({"a": )" + std::string(100, '[') + std::string(100, ']') + "}";
  const BadText cases[] = {
      {"", "not valid JSON"},
      {"{\"a\": 1", "not valid JSON"},
      {"{\"a\": 1} more", "not valid JSON"},
      {"[1, 2]", "expected, not array"},
      {"7", "expected, not number"},
      {R"({"a": 1, "a": 1})", "\"a\" appears twice"},
      {R"({"o": {"a": 1, "b": 2, "a": 3}})", "\"a\" appears twice"},
      {deep, "nested deeper"},
      {"{\"a\": \"\xff\"}", "not valid JSON"},
  };
  for (const BadText& bad : cases) {
    SCOPED_TRACE(bad.text);
    auto object = ParseJsonObject(bad.text);
    EXPECT_EQ(object.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(object.status().message()),
                HasSubstr(bad.complaint));
  }
}

}  // namespace
}  // namespace djinn::examples
