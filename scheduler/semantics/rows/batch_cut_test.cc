#include "scheduler/semantics/rows/batch_cut.h"

#include <functional>
#include <string>

#include "common/srg/size_hole.h"
#include "common/srg/validate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/semantics/analysis/testing.h"

namespace djinn::semantics {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Integers = std::vector<int64_t>;
using List = std::vector<srg::TensorListEntry>;
constexpr std::monostate kNone;

// Builds a program for `rows` rows; its first slot is the input.
using Program = std::function<void(Builder& b, int64_t rows)>;

Builder Build(const Program& program, int64_t rows) {
  Builder builder;
  program(builder, rows);
  EXPECT_TRUE(srg::Validate(builder.graph(), {}).ok());
  return builder;
}

absl::StatusOr<BatchCut> Cut(const Program& program) {
  const Builder whole = Build(program, 6);
  const uint32_t slots[] = {0};
  return FindBatch(whole.graph(), slots, {});
}

// Expects that the program can be cut, and that the parts equal the program for
// fewer rows.
void ExpectCut(const Program& program) {
  const absl::StatusOr<BatchCut> cut = Cut(program);
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ(cut->rows, 6);
  srg::Graph whole = Build(program, 6).graph();
  whole.size_hole = cut->hole;
  for (const int64_t rows : {2, 3, 6}) {
    const absl::StatusOr<srg::Graph> part = srg::AtSize(whole, rows - 6);
    ASSERT_TRUE(part.ok()) << part.status();
    EXPECT_EQ(*part, Build(program, rows).graph()) << rows << " rows";
  }
}

std::string Refusal(const Program& program) {
  const absl::StatusOr<BatchCut> cut = Cut(program);
  return cut.ok() ? "" : std::string(cut.status().message());
}

srg::TensorView Repeated(srg::TensorView view, Shape sizes, Shape strides) {
  view.sizes.assign(sizes.begin(), sizes.end());
  view.strides.assign(strides.begin(), strides.end());
  return view;
}

TEST(BatchCutTest, AnMlp) {
  ExpectCut([](Builder& b, int64_t n) {
    const auto x = b.Linear(b.Bound({n, 16}), 32);
    const auto y = b.Linear(b.Call("relu", {x}, {n, 32}), 8);
    b.Call("softmax", {y, int64_t{-1}, kNone}, {n, 8});
  });
}

TEST(BatchCutTest, SaysWhatHasRowsAndWhatDoesNot) {
  Builder b;
  const auto x = b.Bound({6, 16});
  const auto scale = b.Call("exp", {b.Bound({16})}, {16});
  const auto y = b.Call("mul", {x, scale}, {6, 16});
  const uint32_t candidates[] = {x.slot, 1};
  const absl::StatusOr<BatchCut> cut =
      FindBatch(b.graph(), candidates, {{y.slot}});
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ(cut->row_bytes, (std::vector<int64_t>{64, 0, 0, 64}));
  EXPECT_EQ(cut->of_rows, (std::vector<bool>{false, true}));
}

TEST(BatchCutTest, TokensOfRowsAreMergedAndTakenApart) {
  ExpectCut([](Builder& b, int64_t n) {
    const auto x = b.Bound({n, 7, 16});
    b.Call("neg", {x}, {n, 7, 16});
    const auto weight = b.Bound({16, 32});
    const auto flat =
        b.Call("addmm", {b.Bound({32}), Builder::As(x, {n * 7, 16}), weight},
               {n * 7, 32});
    const auto heads = Repeated(flat, {n, 4, 7, 8}, {7 * 32, 8, 32, 1});
    const auto copied = b.Call("clone", {heads, int64_t{0}}, {n, 4, 7, 8});
    const auto batch = Builder::As(copied, {n * 4, 7, 8});
    const auto scores =
        b.Call("bmm", {batch, Repeated(batch, {n * 4, 8, 7}, {56, 1, 8})},
               {n * 4, 7, 7});
    b.Call("_softmax", {scores, int64_t{2}, false}, {n * 4, 7, 7});
  });
}

TEST(BatchCutTest, AttentionWithAMaskForAll) {
  ExpectCut([](Builder& b, int64_t n) {
    const auto x = b.Bound({n, 4, 7, 8});
    const auto mask = b.Bound({1, 1, 7, 7});
    const auto repeated = Repeated(mask, {n, 4, 7, 7}, {0, 0, 7, 1});
    b.Call("scaled_dot_product_attention", {x, x, x, repeated}, {n, 4, 7, 8});
  });
}

TEST(BatchCutTest, AnImageNetwork) {
  ExpectCut([](Builder& b, int64_t n) {
    const auto x =
        b.Call("conv2d",
               {b.Bound({n, 3, 8, 8}), b.Bound({16, 3, 3, 3}), b.Bound({16})},
               {n, 16, 6, 6});
    const auto y = b.Call(
        "batch_norm",
        {x, b.Bound({16}), b.Bound({16}), b.Bound({16}), b.Bound({16}), false},
        {n, 16, 6, 6});
    b.Write("relu_", {y});
    const auto pooled =
        b.Call("adaptive_avg_pool2d", {y, Integers{1, 1}}, {n, 16, 1, 1});
    b.Linear(Builder::As(pooled, {n, 16}), 10);
  });
}

TEST(BatchCutTest, ADimensionBeforeTheRows) {
  ExpectCut([](Builder& b, int64_t n) {
    const auto x = b.Bound({n, 5, 8});
    const auto turned = Repeated(x, {5, n, 8}, {8, 40, 1});
    const auto copied = b.Call("clone", {turned, int64_t{0}}, {5, n, 8});
    // The second of five copies.
    auto second = Repeated(copied, {n, 8}, {8, 1});
    second.storage_offset = n * 8;
    b.Call("sum", {second, Integers{1}, false}, {n}, srg::DataType::kFloat32,
           "dim_IntList");
  });
}

TEST(BatchCutTest, StatesThatBeginAtZeroHaveAsManyRows) {
  ExpectCut([](Builder& b, int64_t n) {
    const auto x = b.Bound({n, 8});
    const auto state = b.Call("zeros", {Integers{n, 8}}, {n, 8});
    const auto sum = b.Call("add", {x, state}, {n, 8});
    b.Call("cat", {List{sum, state}, int64_t{1}}, {n, 16});
  });
}

TEST(BatchCutTest, RowsAreWrittenIntoABuffer) {
  ExpectCut([](Builder& b, int64_t n) {
    const auto x = b.Bound({n, 8});
    const auto buffer = b.Created({n, 2, 8});
    b.Write("fill_", {buffer, int64_t{1}});
    auto second = Repeated(buffer, {n, 8}, {16, 1});
    second.storage_offset = 8;
    b.Write("copy_", {second, x, false});
    b.Call("neg", {buffer}, {n, 2, 8});
  });
}

TEST(BatchCutTest, LookUps) {
  ExpectCut([](Builder& b, int64_t n) {
    const auto tokens = b.Integers({n, 7});
    const auto x = b.Call("embedding", {b.Bound({96, 16}), tokens}, {n, 7, 16});
    const auto positions =
        b.Call("arange", {int64_t{7}}, {7}, srg::DataType::kInt64);
    const auto p = b.Call("embedding", {b.Bound({32, 16}), positions}, {7, 16});
    const auto y = b.Call("add", {x, p}, {n, 7, 16});
    b.Call("native_layer_norm", {y, Integers{16}, b.Bound({16}), b.Bound({16})},
           {n, 7, 16});
  });
}

TEST(BatchCutTest, ProductsByOneMatrix) {
  ExpectCut([](Builder& b, int64_t n) {
    const auto x = b.Bound({n, 7, 16});
    const auto y = b.Call("matmul", {x, b.Bound({16, 4})}, {n, 7, 4});
    const auto z =
        b.Call("einsum", {std::string("bij,bkj->bik"), List{y, y}}, {n, 7, 7});
    b.Call("matmul", {z, b.Bound({7})}, {n, 7});
  });
}

TEST(BatchCutTest, StacksSortsAndPads) {
  ExpectCut([](Builder& b, int64_t n) {
    const auto x = b.Bound({n, 8});
    const auto y = b.Call("stack", {List{x, x}, int64_t{0}}, {2, n, 8});
    const auto z = b.Call("constant_pad_nd", {y, Integers{1, 1}}, {2, n, 10});
    const auto t = b.Call("flip", {z, Integers{0, 2}}, {2, n, 10});
    b.Call("amax", {t, Integers{0}, false}, {n, 10});
  });
}

// --- Calls that mix rows ---

TEST(BatchCutTest, AMeanOverTheBatch) {
  EXPECT_THAT(Refusal([](Builder& b, int64_t n) {
                b.Call("mean", {b.Bound({n, 8}), Integers{0}, false}, {8},
                       srg::DataType::kFloat32, "dim");
              }),
              AllOf(HasSubstr("node 0 (aten::mean.dim)"),
                    HasSubstr("that of the rows")));
  EXPECT_THAT(Refusal([](Builder& b, int64_t n) {
                b.Call("mean", {b.Bound({n, 8}), kNone}, {});
              }),
              HasSubstr("all elements"));
  // The argument is no dimension.
  EXPECT_THAT(Refusal([](Builder& b, int64_t n) {
                b.Call("sum", {b.Bound({n, 8}), int64_t{1}}, {});
              }),
              HasSubstr("all elements"));
}

TEST(BatchCutTest, ARunningSumOverTheBatch) {
  EXPECT_THAT(Refusal([](Builder& b, int64_t n) {
                b.Call("cumsum", {b.Bound({n, 8}), int64_t{-2}}, {n, 8});
              }),
              HasSubstr("that of the rows"));
}

TEST(BatchCutTest, BatchNormInTraining) {
  EXPECT_THAT(Refusal([](Builder& b, int64_t n) {
                b.Call("batch_norm",
                       {b.Bound({n, 4}), kNone, kNone, kNone, kNone, true},
                       {n, 4});
              }),
              HasSubstr("mean and variance"));
}

TEST(BatchCutTest, AViewThatMergesRowsWithWhatIsAround) {
  EXPECT_THAT(Refusal([](Builder& b, int64_t n) {
                const auto x = b.Bound({n, 5, 8});
                const auto turned = Repeated(x, {5, n, 8}, {8, 40, 1});
                const auto y = b.Call("clone", {turned, int64_t{0}}, {5, n, 8});
                b.Linear(Builder::As(y, {5 * n, 8}), 4);
              }),
              HasSubstr("node 1"));
}

TEST(BatchCutTest, OneRowOfThem) {
  EXPECT_THAT(Refusal([](Builder& b, int64_t n) {
                const auto x = b.Bound({n, 8});
                b.Call("neg", {x}, {n, 8});
                b.Call("neg", {Builder::As(x, {8})}, {8});
              }),
              HasSubstr("some of the rows"));
}

TEST(BatchCutTest, ADraw) {
  EXPECT_THAT(Refusal([](Builder& b, int64_t n) {
                b.Draw("dropout", {b.Bound({n, 8}), int64_t{0}, true}, {n, 8});
              }),
              HasSubstr("random"));
}

TEST(BatchCutTest, AWriteToWhatWasThere) {
  EXPECT_THAT(Refusal([](Builder& b, int64_t n) {
                b.Write("add_", {b.Bound({n, 8}), int64_t{1}});
              }),
              HasSubstr("was there before"));
}

TEST(BatchCutTest, RowsByRows) {
  EXPECT_THAT(Refusal([](Builder& b, int64_t n) {
                const auto x = b.Bound({n, 8});
                b.Call("mm", {x, Builder::Transposed(x)}, {n, n});
              }),
              HasSubstr("depends on the row"));
  EXPECT_THAT(Refusal([](Builder& b, int64_t n) {
                const auto x = b.Bound({n, 8});
                b.Call("mm", {Builder::Transposed(x), x}, {8, 8});
              }),
              HasSubstr("sums over the rows"));
}

TEST(BatchCutTest, AWeightForEachRow) {
  EXPECT_THAT(Refusal([](Builder& b, int64_t n) {
                b.Call("add", {b.Bound({n, 8}), b.Bound({n, 8})}, {n, 8});
              }),
              HasSubstr("operand 1"));
}

TEST(BatchCutTest, PositionsThatCountTheRows) {
  EXPECT_THAT(Refusal([](Builder& b, int64_t n) {
                const auto x = b.Bound({n, 8});
                const auto count = b.Call("arange", {n}, {n});
                b.Call("mul", {x, Builder::As(count, {n, 1})}, {n, 8});
              }),
              HasSubstr("operand 1"));
}

TEST(BatchCutTest, JoinedRows) {
  EXPECT_THAT(Refusal([](Builder& b, int64_t n) {
                const auto x = b.Bound({n, 8});
                b.Call("cat", {List{x, x}, int64_t{0}}, {2 * n, 8});
              }),
              HasSubstr("joins"));
}

TEST(BatchCutTest, UnknownOperatorIsRefused) {
  EXPECT_THAT(Refusal([](Builder& b, int64_t n) {
                b.Call("mystery", {b.Bound({n, 8})}, {n, 8});
              }),
              HasSubstr("nothing is known"));
}

TEST(BatchCutTest, AZeroStateThatBelongsToNoRowToo) {
  // The state is used first as one vector for all rows, and then as one vector
  // per row.
  EXPECT_THAT(Refusal([](Builder& b, int64_t n) {
                const auto x = b.Bound({n, 6});
                const auto zero = b.Call("zeros", {Integers{6}}, {6});
                const auto y = b.Call("add", {x, zero}, {n, 6});
                b.Call("add", {y, Builder::As(zero, {6, 1})}, {n, 6});
              }),
              HasSubstr("operand 1"));
}

TEST(BatchCutTest, NoBatchAtAll) {
  EXPECT_THAT(Refusal([](Builder& b, int64_t) {
                b.Call("neg", {b.Bound({1, 1})}, {1, 1});
              }),
              HasSubstr("at least two rows"));
}

TEST(BatchCutTest, TheOutputsShowTheRows) {
  // The input's views show only tokens, one after the other.
  Builder b;
  const auto x = b.Bound({42, 16});
  const auto y = b.Linear(x, 8);
  const auto z = b.Call(
      "_softmax", {Builder::As(y, {6, 7, 8}), int64_t{1}, false}, {6, 7, 8});
  const absl::StatusOr<BatchCut> cut =
      FindBatch(b.graph(), {{x.slot}}, {{z.slot}});
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ(cut->rows, 6);
}

TEST(BatchCutTest, AnOutputOfNoRow) {
  Builder b;
  const auto x = b.Bound({6, 8});
  b.Call("neg", {x}, {6, 8});
  const auto other = b.Call("exp", {b.Bound({8})}, {8});
  const absl::StatusOr<BatchCut> cut =
      FindBatch(b.graph(), {{x.slot}}, {{other.slot}});
  EXPECT_THAT(std::string(cut.status().message()), HasSubstr("leaves it"));
}

TEST(BatchCutTest, AnInputThatIsReadBeyondItsRows) {
  Builder b;
  const auto x = b.Bound({6, 8});
  b.Call("neg", {x}, {6, 8});
  auto rest = x;
  rest.storage_offset = 4;
  b.Call("neg", {rest}, {6, 8});
  EXPECT_FALSE(FindBatch(b.graph(), {{x.slot}}, {}).ok());
}

}  // namespace
}  // namespace djinn::semantics
