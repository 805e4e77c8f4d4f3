#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/semantics/analysis/testing.h"

namespace djinn::semantics {
namespace {

using ::testing::ElementsAre;

using Entries = std::vector<srg::TensorListEntry>;

TEST(KvCacheTest, JoinedByCat) {
  Builder b;
  b.Call("cat",
         {Entries{b.Bound({2, 4, 7, 8}), b.Bound({2, 4, 1, 8})}, int64_t{2}},
         {2, 4, 8, 8});
  b.Call("cat", {Entries{b.Bound({0}), b.Bound({2, 4, 7, 8})}, int64_t{-2}},
         {2, 4, 7, 8});
  const Found found(b);
  EXPECT_THAT(found.traits(0), ElementsAre("cat", "one_token"));
  EXPECT_THAT(found.traits(1), ElementsAre("cat", "empty"));
}

TEST(KvCacheTest, WrittenAtPositions) {
  Builder b;
  const auto count = b.Integers({});
  const auto begin = b.Call("arange", {int64_t{1}}, {1}, srg::DataType::kInt64);
  const auto at = b.Call("add", {begin, count}, {1}, srg::DataType::kInt64);
  b.Write("add_", {count, int64_t{1}});
  b.Write("index_copy_",
          {b.Bound({2, 4, 9, 8}), int64_t{2}, at, b.Bound({2, 4, 1, 8})});
  const Found found(b);
  EXPECT_THAT(found.roles(),
              ElementsAre("kv_cache.position", "kv_cache.position",
                          "kv_cache.position", "kv_cache.update"));
  EXPECT_THAT(found.traits(3), ElementsAre("index_copy", "one_token"));
}

TEST(KvCacheTest, WrittenAsASlice) {
  Builder b;
  const auto cache = b.Bound({1, 4, 9, 8});
  srg::TensorView part = cache;
  part.sizes[2] = 1;
  part.storage_offset = 3 * 8;
  b.Write("copy_", {part, b.Bound({1, 4, 1, 8})});
  b.Call("scaled_dot_product_attention",
         {b.Bound({1, 4, 1, 8}), cache, b.Bound({1, 4, 9, 8})}, {1, 4, 1, 8});
  EXPECT_THAT(Found(b).traits(0), ElementsAre("slice_write", "one_token"));
}

TEST(KvCacheTest, OtherCatsAreNone) {
  Builder b;
  // Joins along the features, as in rotations, or along the channels of images.
  const auto x = b.Bound({2, 4, 7, 8});
  b.Call("cat", {Entries{x, x}, int64_t{-1}}, {2, 4, 7, 16});
  b.Call("cat", {Entries{x, x}, int64_t{1}}, {2, 8, 7, 8});
  b.Call("cat", {Entries{b.Bound({2, 7}), b.Bound({2, 1})}, int64_t{-2}},
         {2, 8});
  EXPECT_THAT(Found(b).roles(), ElementsAre("", "", ""));
}

}  // namespace
}  // namespace djinn::semantics
