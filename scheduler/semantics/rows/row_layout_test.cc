#include "scheduler/semantics/rows/row_layout.h"

#include "gtest/gtest.h"

namespace djinn::semantics {
namespace {

srg::TensorView View(srg::Dimensions sizes, srg::Dimensions strides,
                     int64_t offset = 0) {
  srg::TensorView view;
  view.data_type = srg::DataType::kFloat32;
  view.sizes = std::move(sizes);
  view.strides = std::move(strides);
  view.storage_offset = offset;
  return view;
}

using Rows = std::optional<RowDimension>;

// [4 rows, 3, 5] of float32, one row after the other.
constexpr RowLayout kOuter = {4, 15 * 4};
// [2, 4 rows, 5].
constexpr RowLayout kInner = {4, 5 * 4};

TEST(RowLayoutTest, FindsTheRows) {
  EXPECT_EQ(FindRows(View({4, 3, 5}, {15, 5, 1}), kOuter), (Rows{{0, 1}}));
  EXPECT_EQ(FindRows(View({3, 4, 5}, {5, 15, 1}), kOuter), (Rows{{1, 1}}));
  EXPECT_EQ(FindRows(View({2, 4, 5}, {20, 5, 1}), kInner), (Rows{{1, 1}}));
  // The last two elements of each row, and its second three.
  EXPECT_EQ(FindRows(View({4, 2}, {15, 5}, 4), kOuter), (Rows{{0, 1}}));
  // The second period of the rows.
  EXPECT_EQ(FindRows(View({4, 5}, {5, 1}, 20), kInner), (Rows{{0, 1}}));
}

TEST(RowLayoutTest, RowsAreMergedWithWhatIsInThem) {
  EXPECT_EQ(FindRows(View({12, 5}, {5, 1}), kOuter), (Rows{{0, 3}}));
  EXPECT_EQ(FindRows(View({60}, {1}), kOuter), (Rows{{0, 15}}));
}

TEST(RowLayoutTest, RepeatedElementsAreInTheirRow) {
  EXPECT_EQ(FindRows(View({4, 7, 5}, {15, 0, 1}), kOuter), (Rows{{0, 1}}));
}

TEST(RowLayoutTest, RowsMergedWithWhatIsAroundThemAreNotFound) {
  EXPECT_EQ(FindRows(View({8, 5}, {5, 1}), kInner), std::nullopt);
}

TEST(RowLayoutTest, SomeOfTheRowsAreNotFound) {
  EXPECT_EQ(FindRows(View({3, 5}, {5, 1}), kOuter), std::nullopt);
  EXPECT_EQ(FindRows(View({2, 3, 5}, {15, 5, 1}), kOuter), std::nullopt);
  EXPECT_EQ(FindRows(View({2, 3, 5}, {30, 5, 1}), kOuter), std::nullopt);
  EXPECT_EQ(FindRows(View({3, 3, 5}, {15, 5, 1}, 15), kOuter), std::nullopt);
  EXPECT_EQ(FindRows(View({3, 5}, {5, 1}, 15), kOuter), std::nullopt);
}

TEST(RowLayoutTest, ViewsAcrossRowsAreNotFound) {
  // Two dimensions that go through the rows, a diagonal, a shifted window.
  EXPECT_EQ(FindRows(View({2, 2, 15}, {30, 15, 1}), kOuter), std::nullopt);
  EXPECT_EQ(FindRows(View({4}, {16}), kOuter), std::nullopt);
  EXPECT_EQ(FindRows(View({4, 15}, {15, 1}, 1), kOuter), std::nullopt);
  // Overlapping windows.
  EXPECT_EQ(FindRows(View({12, 10}, {5, 1}), kOuter), std::nullopt);
  EXPECT_EQ(FindRows(View({4, 0}, {15, 1}), kOuter), std::nullopt);
}

TEST(RowLayoutTest, ElementsOfAnotherSizeAreCountedInBytes) {
  srg::TensorView view = View({4, 30}, {30, 1});
  view.data_type = srg::DataType::kFloat16;
  EXPECT_EQ(FindRows(view, kOuter), (Rows{{0, 1}}));
  view.data_type = srg::DataType::kComplex64;
  EXPECT_EQ(FindRows(view, kOuter), std::nullopt);
}

TEST(RowLayoutTest, LaysAStorageOut) {
  EXPECT_EQ(LayoutOf(View({4, 3, 5}, {15, 5, 1}), {0, 1}, 4), kOuter);
  EXPECT_EQ(LayoutOf(View({12, 5}, {5, 1}), {0, 3}, 4), kOuter);
  EXPECT_EQ(LayoutOf(View({2, 4, 5}, {20, 5, 1}), {1, 1}, 4), kInner);
  // All rows in one place.
  EXPECT_EQ(LayoutOf(View({4, 5}, {0, 1}), {0, 1}, 4), std::nullopt);
}

TEST(RowLayoutTest, BatchDimensionsGrowWithTheirRows) {
  const srg::TensorView view = View({2, 4, 3}, {20, 5, 1}, 22);
  const RowSlopes slopes = SlopesOf(view, kInner, {1, 1});
  EXPECT_EQ(slopes.storage_offset, 5);
  EXPECT_EQ(slopes.sizes, (srg::Dimensions{0, 1, 0}));
  EXPECT_EQ(slopes.strides, (srg::Dimensions{5, 0, 0}));
}

}  // namespace
}  // namespace djinn::semantics
