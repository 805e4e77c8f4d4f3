// Tests replaced values and flags on the CPU: the check is tensor code like any
// other.
#include "gpu_worker/device/torch/guards/index_check.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/core/List.h"
#include "ATen/core/dispatch/Dispatcher.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/tensor.h"
#include "ATen/ops/zeros.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using c10::IValue;
using torch::jit::Stack;

struct Outcome {
  absl::Status status;
  bool flag = false;
  // The arguments after the check.
  Stack stack;
};

class IndexCheckTest : public testing::Test {
 protected:
  static c10::OperatorHandle Find(const std::string& op,
                                  const std::string& overload = "") {
    return c10::Dispatcher::singleton().findSchemaOrThrow(
        ("aten::" + op).c_str(), overload.c_str());
  }

  static Outcome Check(const c10::OperatorHandle& op, Stack stack) {
    const std::vector<IndexArgument> arguments = IndexArgumentsOf(op.schema());
    EXPECT_FALSE(arguments.empty()) << op.schema().name();
    at::Tensor flag = at::zeros({}, at::kBool);
    Outcome outcome;
    outcome.status = IndexCheck(arguments, flag).Check(&stack);
    outcome.flag = flag.item<bool>();
    outcome.stack = std::move(stack);
    return outcome;
  }

  // Expects that every index is in range, that the check changes nothing, and
  // that the operator accepts the arguments.
  static void ExpectGood(const c10::OperatorHandle& op, const Stack& stack) {
    Outcome outcome = Check(op, stack);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_FALSE(outcome.flag) << op.schema().name();
    for (size_t i = 0; i < stack.size(); ++i) {
      if (!stack[i].isTensor()) continue;
      EXPECT_TRUE(outcome.stack[i].toTensor().equal(stack[i].toTensor()));
      EXPECT_EQ(outcome.stack[i].toTensor().scalar_type(),
                stack[i].toTensor().scalar_type());
    }
    EXPECT_NO_THROW(op.callBoxed(&outcome.stack)) << op.schema().name();
  }

  // Expects that some indices are bad, that the operator refuses them, and that
  // it accepts the arguments after the check.
  static void ExpectBad(const c10::OperatorHandle& op, const Stack& stack) {
    Stack plain = stack;
    EXPECT_ANY_THROW(op.callBoxed(&plain)) << op.schema().name();
    Outcome outcome = Check(op, stack);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_TRUE(outcome.flag) << op.schema().name();
    EXPECT_NO_THROW(op.callBoxed(&outcome.stack)) << op.schema().name();
  }
};

at::Tensor Longs(const std::vector<int64_t>& values) {
  return at::tensor(values, at::kLong);
}

TEST_F(IndexCheckTest, EveryRuleNamesArgumentsThatExist) {
  std::vector<std::string> found;
  for (const c10::OperatorName& name :
       c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op.has_value()) continue;
    for (const IndexArgument& argument : IndexArgumentsOf(op->schema())) {
      found.push_back(std::string(argument.rule.op) + "/" +
                      std::string(argument.rule.argument));
    }
  }
  for (const IndexRule& rule : IndexRules()) {
    const std::string key =
        std::string(rule.op) + "/" + std::string(rule.argument);
    EXPECT_NE(std::find(found.begin(), found.end(), key), found.end()) << key;
  }
}

TEST_F(IndexCheckTest, OperatorsWithoutIndicesAreLeftAlone) {
  EXPECT_TRUE(IndexArgumentsOf(Find("add", "Tensor").schema()).empty());
  EXPECT_TRUE(IndexArgumentsOf(Find("select", "int").schema()).empty());
  EXPECT_TRUE(IndexArgumentsOf(Find("bernoulli", "p").schema()).empty());
}

TEST_F(IndexCheckTest, Embedding) {
  const auto op = Find("embedding");
  const at::Tensor weight = at::randn({5, 3});
  for (const at::ScalarType type : {at::kInt, at::kLong}) {
    ExpectGood(op, {weight, Longs({0, 4, 2}).to(type), -1, false, false});
    ExpectBad(op, {weight, Longs({0, 5, 2}).to(type), -1, false, false});
    ExpectBad(op, {weight, Longs({0, -1, 2}).to(type), -1, false, false});
  }
  const Outcome outcome =
      Check(op, {weight, Longs({0, 5, 2}), -1, false, false});
  EXPECT_TRUE(outcome.stack[1].toTensor().equal(Longs({0, 4, 2})));
}

TEST_F(IndexCheckTest, TheOperandItselfIsNotWritten) {
  const at::Tensor indices = Longs({0, 5, 2});
  Check(Find("embedding"), {at::randn({5, 3}), indices, -1, false, false});
  EXPECT_TRUE(indices.equal(Longs({0, 5, 2})));
}

TEST_F(IndexCheckTest, AlongADimension) {
  const at::Tensor self = at::randn({4, 6});
  const auto select = Find("index_select");
  ExpectGood(select, {self, 1, Longs({5, 0})});
  ExpectBad(select, {self, 1, Longs({6, 0})});
  ExpectBad(select, {self, 0, Longs({5, 0})});
  ExpectGood(select, {self, -1, Longs({5})});
  const auto gather = Find("gather");
  ExpectGood(gather, {self, 0, at::zeros({1, 6}, at::kLong) + 3, false});
  ExpectBad(gather, {self, 0, at::zeros({1, 6}, at::kLong) + 4, false});
  ExpectBad(gather, {self, 0, at::zeros({1, 6}, at::kLong) - 1, false});
  const auto scatter = Find("scatter_add");
  ExpectGood(scatter,
             {self, 0, at::zeros({1, 6}, at::kLong) + 3, at::ones({1, 6})});
  ExpectBad(scatter,
            {self, 0, at::zeros({1, 6}, at::kLong) + 4, at::ones({1, 6})});
  const auto add = Find("index_add");
  ExpectGood(add, {self, 0, Longs({3}), at::ones({1, 6}), 1});
  ExpectBad(add, {self, 0, Longs({4}), at::ones({1, 6}), 1});
  const auto copy = Find("index_copy_");
  ExpectBad(copy, {self.clone(), 0, Longs({4}), at::ones({1, 6})});
}

TEST_F(IndexCheckTest, NegativeOnesCountFromTheEndWherePyTorchLetsThem) {
  const at::Tensor self = at::randn({4, 6});
  const auto fill = Find("index_fill", "int_Scalar");
  ExpectGood(fill, {self, 0, Longs({-4, 3}), 1});
  ExpectBad(fill, {self, 0, Longs({-5}), 1});
  const auto take = Find("take");
  ExpectGood(take, {self, Longs({-24, 23})});
  ExpectBad(take, {self, Longs({-25})});
  ExpectBad(take, {self, Longs({24})});
}

c10::List<std::optional<at::Tensor>> Positions(
    const std::vector<std::optional<at::Tensor>>& entries) {
  c10::List<std::optional<at::Tensor>> list;
  for (const auto& entry : entries) list.push_back(entry);
  return list;
}

TEST_F(IndexCheckTest, EachPositionHasItsOwnDimension) {
  const auto op = Find("index", "Tensor");
  const at::Tensor self = at::randn({2, 4, 6});
  ExpectGood(op, {self, Positions({Longs({-2, 1}), Longs({3, -4})})});
  ExpectBad(op, {self, Positions({Longs({-2, 2}), Longs({3, -4})})});
  ExpectBad(op, {self, Positions({Longs({-2, 1}), Longs({4, -4})})});
  ExpectGood(op, {self, Positions({std::nullopt, std::nullopt, Longs({5})})});
  ExpectBad(op, {self, Positions({std::nullopt, std::nullopt, Longs({6})})});
  // A mask takes up as many dimensions as it has, and stays unchanged.
  const at::Tensor mask = at::ones({2, 4}, at::kBool);
  const at::Tensor eight = at::arange(8, at::kLong) % 6;
  ExpectGood(op, {self, Positions({mask, eight})});
  ExpectBad(op, {self, Positions({mask, eight + 1})});
  const Outcome outcome = Check(op, {self, Positions({mask, eight})});
  EXPECT_TRUE(outcome.stack[1].toOptionalTensorVector()[0]->is_same(mask));
  const auto put = Find("index_put_");
  ExpectBad(put, {self.clone(), Positions({Longs({2})}), at::ones({}), false});
}

TEST_F(IndexCheckTest, ClassesButForTheIgnoredOne) {
  const at::Tensor scores = at::randn({3, 5});
  const auto loss = Find("nll_loss_forward");
  const IValue none;
  ExpectGood(loss, {scores, Longs({0, 4, -100}), none, 1, -100});
  ExpectBad(loss, {scores, Longs({0, 5, -100}), none, 1, -100});
  ExpectBad(loss, {scores, Longs({0, -1, 2}), none, 1, -100});
  const auto entropy = Find("cross_entropy_loss");
  ExpectGood(entropy, {scores, Longs({0, 4, -100}), none, 1, -100, 0.0});
  ExpectBad(entropy, {scores, Longs({0, 4, 7}), none, 1, -100, 0.0});
  // Probabilities are no indices.
  ExpectGood(entropy, {scores, at::randn({3, 5}), none, 1, -100, 0.0});
}

TEST_F(IndexCheckTest, ANumberBounds) {
  const auto backward = Find("embedding_dense_backward");
  // The CPU's kernel trusts its indices, so the test does not call it with bad
  // ones.
  const at::Tensor grad = at::randn({2, 3});
  EXPECT_FALSE(Check(backward, {grad, Longs({0, 4}), 5, -1, false}).flag);
  EXPECT_TRUE(Check(backward, {grad, Longs({0, 5}), 5, -1, false}).flag);
  const auto one_hot = Find("one_hot");
  EXPECT_FALSE(Check(one_hot, {Longs({0, 4}), 5}).flag);
  EXPECT_TRUE(Check(one_hot, {Longs({0, 5}), 5}).flag);
  // The operator computes the number of classes itself, but must not see
  // negative indices.
  EXPECT_FALSE(Check(one_hot, {Longs({0, 5}), -1}).flag);
  EXPECT_TRUE(Check(one_hot, {Longs({0, -2}), -1}).flag);
  EXPECT_TRUE(Check(one_hot, {Longs({0, -2}), -1})
                  .stack[0]
                  .toTensor()
                  .equal(Longs({0, 0})));
}

TEST_F(IndexCheckTest, OffsetsOfBagsAscend) {
  const auto bag = Find("embedding_bag");
  const auto stack = [](const at::Tensor& offsets) {
    return Stack{at::randn({5, 3}),
                 Longs({0, 4, 2, 1}),
                 offsets,
                 false,
                 0,
                 false,
                 IValue(),
                 false};
  };
  ExpectGood(bag, stack(Longs({0, 2, 2, 4})));
  const Outcome outcome = Check(bag, stack(Longs({0, 3, 1, 4})));
  EXPECT_TRUE(outcome.flag);
  EXPECT_TRUE(outcome.stack[2].toTensor().equal(Longs({0, 3, 3, 4})));
}

TEST_F(IndexCheckTest, Repeats) {
  const auto op = Find("repeat_interleave", "self_Tensor");
  const at::Tensor x = at::randn({2, 3});
  ExpectGood(op, {x, Longs({0, 2}), 0, IValue()});
  EXPECT_TRUE(Check(op, {x, Longs({0, -1}), 0, IValue()}).flag);
  // The sum of these would overflow.
  EXPECT_TRUE(
      Check(op, {x, Longs({int64_t{1} << 62, int64_t{1} << 62}), 0, IValue()})
          .flag);
  // The check does not trust the size of the result that the client states.
  const Outcome outcome = Check(op, {x, Longs({0, 2}), 0, int64_t{1}});
  EXPECT_FALSE(outcome.flag);
  EXPECT_TRUE(outcome.stack[3].isNone());
}

TEST_F(IndexCheckTest, NoMoreIsMaskedThanTheSourceHas) {
  const auto op = Find("masked_scatter");
  const at::Tensor x = at::randn({2, 3});
  const at::Tensor mask = at::ones({3}, at::kBool);
  ExpectGood(op, {x, mask, at::randn({6})});
  ExpectBad(op, {x, mask, at::randn({5})});
}

TEST_F(IndexCheckTest, Weights) {
  const auto op = Find("multinomial");
  const at::Tensor good =
      at::tensor(std::vector<float>{1, 0, 2, 0.5F, 0, 0}).view({2, 3});
  ExpectGood(op, {good, 1, true, IValue()});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, inf, -1.0F}) {
    at::Tensor rows = good.clone();
    rows[1][2].fill_(bad);
    ExpectBad(op, {rows, 1, true, IValue()});
  }
  at::Tensor zero = good.clone();
  zero[1][0].fill_(0);
  const Outcome outcome = Check(op, {zero, 1, true, IValue()});
  EXPECT_TRUE(outcome.flag);
  // The other rows are unchanged.
  EXPECT_TRUE(outcome.stack[0].toTensor()[0].equal(good[0]));
  EXPECT_TRUE(outcome.stack[0].toTensor()[1].equal(at::ones({3})));
}

TEST_F(IndexCheckTest, ListsThatANegativeOneEnds) {
  const auto loss = Find("multilabel_margin_loss");
  ExpectGood(loss, {at::randn({4}), Longs({3, 0, -1, 1}), 1});
  ExpectBad(loss, {at::randn({4}), Longs({4, 0, -1, 1}), 1});
}

TEST_F(IndexCheckTest, Pooling) {
  const auto unpool = Find("max_unpool2d");
  const at::Tensor x = at::randn({1, 1, 2, 2});
  const std::vector<int64_t> size = {4, 4};
  const at::Tensor places = Longs({0, 3, 7, 15}).view({1, 1, 2, 2});
  ExpectGood(unpool, {x, places, size});
  ExpectBad(unpool, {x, places + 1, size});
}

TEST_F(IndexCheckTest, Probabilities) {
  const auto entropy = Find("binary_cross_entropy");
  const at::Tensor half = at::zeros({2}) + 0.5;
  ExpectGood(entropy, {half, half, IValue(), 1});
  ExpectBad(entropy, {half + 1, half, IValue(), 1});
  // The check covers the target, too, which a CPU's kernel does not check.
  EXPECT_TRUE(Check(entropy, {half, half + 1, IValue(), 1}).flag);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(Check(entropy, {half * nan, half, IValue(), 1}).flag);
  const auto assertion = Find("_assert_async");
  ExpectGood(assertion, {at::ones({})});
  ExpectBad(assertion, {at::zeros({})});
}

TEST_F(IndexCheckTest, NothingIsNothing) {
  const Outcome outcome =
      Check(Find("embedding"),
            {at::empty({0, 3}), at::empty({0}, at::kLong), -1, false, false});
  EXPECT_TRUE(outcome.status.ok());
  EXPECT_FALSE(outcome.flag);
}

TEST_F(IndexCheckTest, IntoNothingFailsAtOnce) {
  const Outcome outcome = Check(
      Find("embedding"), {at::empty({0, 3}), Longs({0}), -1, false, false});
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(outcome.status.message().find("index out of range"),
            absl::string_view::npos);
}

TEST_F(IndexCheckTest, LayoutsStay) {
  const at::Tensor weight = at::randn({5, 3});
  const at::Tensor repeated = Longs({9}).expand({4});
  const at::Tensor turned = at::zeros({2, 3}, at::kLong).t();
  const auto op = Find("embedding");
  EXPECT_EQ(Check(op, {weight, repeated, -1, false, false})
                .stack[1]
                .toTensor()
                .strides(),
            repeated.strides());
  EXPECT_EQ(Check(op, {weight, turned, -1, false, false})
                .stack[1]
                .toTensor()
                .strides(),
            turned.strides());
}

TEST_F(IndexCheckTest, SaysWhichOperator) {
  const auto op = Find("gather");
  const absl::Status status =
      IndexOutOfRange("aten::gather", IndexArgumentsOf(op.schema()));
  EXPECT_EQ(status.message(),
            "index out of range in aten::gather, argument index");
}

}  // namespace
}  // namespace djinn::worker
