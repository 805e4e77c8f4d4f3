#include "scheduler/semantics/analysis/context.h"

#include "gtest/gtest.h"
#include "scheduler/semantics/analysis/testing.h"

namespace djinn::semantics {
namespace {

constexpr Origin kText = {Phase::kForward, Modality::kText};

srg::TensorView View(Shape sizes,
                     srg::DataType type = srg::DataType::kFloat32) {
  return Builder().Bound(std::move(sizes), type);
}

void Leave(const srg::TensorView& view, Context* context) {
  context->RememberLeft(*Context::KeyOf(&view), kText, view);
}

TEST(ContextTest, OnlyLargeFloatingMatricesHaveAKey) {
  EXPECT_FALSE(Context::KeyOf(nullptr).has_value());
  const auto known = [](const srg::TensorView& view) {
    return Context::KeyOf(&view).has_value();
  };
  EXPECT_TRUE(known(View({1, 64})));
  EXPECT_FALSE(known(View({1, 63})));
  EXPECT_FALSE(known(View({64})));
  EXPECT_FALSE(known(View({8, 64}, srg::DataType::kInt64)));
}

TEST(ContextTest, LeftValueIsFoundByItsSizes) {
  Context context;
  Leave(View({2, 7, 48}), &context);
  ASSERT_TRUE(context.LeftBy(View({2, 7, 48})).has_value());
  EXPECT_EQ(context.LeftBy(View({2, 7, 48}))->modality, Modality::kText);
  // Values with as many bytes but other sizes or types.
  EXPECT_FALSE(context.LeftBy(View({7, 2, 48})).has_value());
  EXPECT_FALSE(context.LeftBy(View({14, 48})).has_value());
  EXPECT_FALSE(
      context.LeftBy(View({2, 7, 96}, srg::DataType::kFloat16)).has_value());
  // Only LeftBy() compares the sizes.
  const srg::TensorView flat = View({14, 48});
  EXPECT_TRUE(context.MadeBy(*Context::KeyOf(&flat)).has_value());
}

TEST(ContextTest, RowsOfAnImageMayBecomeOneDimension) {
  Context context;
  Leave(View({2, 48, 4, 4}), &context);
  EXPECT_TRUE(context.LeftBy(View({2, 16, 48})).has_value());
  EXPECT_FALSE(context.LeftBy(View({32, 48})).has_value());
}

TEST(ContextTest, OneVectorARowMayBeAWeight) {
  Context context;
  Leave(View({1, 1, 768}), &context);
  EXPECT_FALSE(context.LeftBy(View({1, 1, 768})).has_value());
  Leave(View({1, 768}), &context);
  EXPECT_FALSE(context.LeftBy(View({1, 1, 768})).has_value());
  EXPECT_TRUE(context.LeftBy(View({1, 768})).has_value());
}

TEST(ContextTest, ViewThatIsMadeLaterIsNoLongerLeft) {
  Context context;
  const srg::TensorView view = View({2, 7, 48});
  Leave(view, &context);
  context.RememberMade(*Context::KeyOf(&view), kText);
  EXPECT_FALSE(context.LeftBy(view).has_value());
  EXPECT_TRUE(context.MadeBy(*Context::KeyOf(&view)).has_value());
}

TEST(ContextTest, AnEmbeddingOfUnknownOriginHidesNothing) {
  Context context;
  const srg::TensorView view = View({2, 7, 48});
  const Context::Key key = *Context::KeyOf(&view);
  context.RememberEmbedding(key, view);
  EXPECT_TRUE(context.IsLeftByEmbedding(view));
  EXPECT_EQ(context.LeftBy(view)->modality, Modality::kUnspecified);
  Leave(view, &context);
  EXPECT_FALSE(context.IsLeftByEmbedding(view));
  context.RememberEmbedding(key, view);
  EXPECT_TRUE(context.IsLeftByEmbedding(view));
  EXPECT_EQ(context.LeftBy(view)->modality, Modality::kText);
  // The value has that size, but was not left.
  context.RememberMade(key, kText);
  context.RememberEmbedding(key, view);
  EXPECT_FALSE(context.IsLeftByEmbedding(view));
}

TEST(ContextTest, OldestEntryIsDroppedFirst) {
  Context context;
  Leave(View({2, 64}), &context);
  for (int64_t rows = 3; rows < 300; ++rows) Leave(View({rows, 64}), &context);
  EXPECT_FALSE(context.LeftBy(View({2, 64})).has_value());
  EXPECT_TRUE(context.LeftBy(View({299, 64})).has_value());
}

}  // namespace
}  // namespace djinn::semantics
