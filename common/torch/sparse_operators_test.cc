#include "common/torch/sparse_operators.h"

#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "ATen/core/dispatch/Dispatcher.h"
#include "ATen/core/stack.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using ::testing::HasSubstr;
using torch::jit::Stack;

// Returns a tensor with two elements at the same place.
at::Tensor Repeating() {
  return at::sparse_coo_tensor(
      at::tensor({2, 0, 2, 1, 0, 1}, at::kLong).view({2, 3}),
      at::tensor({1.5, 2., -4.}, at::kDouble), {3, 4});
}

// Calls the operator with the operands' parts and the other arguments.
std::vector<at::Tensor> Call(const char* name, const char* overload,
                             const std::vector<at::Tensor>& operands,
                             const Stack& others = {}) {
  DefineSparseOperators();
  std::vector<at::Tensor> parts;
  std::vector<int64_t> layout;
  for (const at::Tensor& operand : operands) {
    AppendParts(operand, &parts, &layout);
  }
  Stack stack = {parts, layout};
  stack.insert(stack.end(), others.begin(), others.end());
  c10::Dispatcher::singleton()
      .findSchemaOrThrow((std::string(kSparseNamespace) + name).c_str(),
                         overload)
      .callBoxed(stack);
  std::vector<at::Tensor> results;
  for (const c10::IValue& value : stack) results.push_back(value.toTensor());
  return results;
}

// Returns the text of the error that the call throws.
template <typename Function>
std::string ErrorOf(const Function& call) {
  try {
    call();
    return "none";
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
}

TEST(SparseOperatorsTest, SparseResultIsJoinedFromItsParts) {
  const at::Tensor sparse = Repeating();
  const at::Tensor result = JoinResult(Call("_coalesce", "", {sparse}));
  const at::Tensor expected = sparse.coalesce();
  EXPECT_TRUE(result.is_coalesced());
  EXPECT_EQ(result.sizes(), expected.sizes());
  EXPECT_TRUE(at::equal(result._indices(), expected._indices()));
  EXPECT_TRUE(at::equal(result._values(), expected._values()));
}

TEST(SparseOperatorsTest, ProductHasTheBitsOfPyTorch) {
  const at::Tensor sparse = Repeating();
  const at::Tensor dense = at::randn({4, 5}, at::kDouble);
  const at::Tensor addend = at::randn({3, 5}, at::kDouble);
  for (const at::Tensor& factor : {sparse, sparse.to_sparse_csr()}) {
    const std::vector<at::Tensor> results =
        Call("addmm", "strided", {addend, factor, dense}, {0.5, 2});
    EXPECT_TRUE(
        at::equal(results.at(0), at::addmm(addend, factor, dense, 0.5, 2)));
  }
}

TEST(SparseOperatorsTest, MetadataOfAProductNeedsNoData) {
  const auto meta = [](const at::Tensor& tensor) {
    return tensor.to(c10::kMeta);
  };
  const at::Tensor sparse = Repeating();
  DefineSparseOperators();
  std::vector<at::Tensor> parts;
  std::vector<int64_t> layout;
  for (const at::Tensor& operand : {at::zeros({3, 5}, at::kDouble), sparse,
                                    at::zeros({4, 5}, at::kDouble)}) {
    AppendParts(operand, &parts, &layout);
  }
  for (at::Tensor& part : parts) part = meta(part);
  Stack stack = {parts, layout, 1, 1};
  c10::Dispatcher::singleton()
      .findSchemaOrThrow("djinn_sparse::addmm", "strided")
      .callBoxed(stack);
  EXPECT_EQ(stack.at(0).toTensor().sizes(), at::IntArrayRef({3, 5}));
  EXPECT_EQ(stack.at(0).toTensor().scalar_type(), at::kDouble);
}

TEST(SparseOperatorsTest, ResultsShareNoMemoryWithOperands) {
  const at::Tensor sparse = Repeating();
  for (const at::Tensor& part : Call("_coalesce", "", {sparse})) {
    EXPECT_FALSE(part.is_alias_of(sparse._indices()));
    EXPECT_FALSE(part.is_alias_of(sparse._values()));
  }
}

TEST(SparseOperatorsTest, IndexOutsideTheTensorIsRefused) {
  const at::Tensor dense = at::ones({4, 2}, at::kDouble);
  const at::Tensor wrong = at::_sparse_coo_tensor_unsafe(
      at::tensor({0, 9, 1, 0}, at::kLong).view({2, 2}),
      at::ones({2}, at::kDouble), {3, 4});
  EXPECT_THAT(ErrorOf([&] {
                Call("addmm", "strided",
                     {at::zeros({3, 2}, at::kDouble), wrong, dense}, {1, 1});
              }),
              HasSubstr("inconsistent with indices"));
  const at::Tensor compressed = at::_sparse_csr_tensor_unsafe(
      at::tensor({0, 1, 2, 2}, at::kLong), at::tensor({0, 77}, at::kLong),
      at::ones({2}, at::kDouble), {3, 4},
      at::TensorOptions(at::kSparseCsr).dtype(at::kDouble));
  EXPECT_THAT(ErrorOf([&] {
                Call("addmm", "strided",
                     {at::zeros({3, 2}, at::kDouble), compressed, dense},
                     {1, 1});
              }),
              HasSubstr("col_indices"));
}

TEST(SparseOperatorsTest, CompressedIndicesInAnyOrderAreChecked) {
  const at::Tensor dense = at::randn({4, 2}, at::kDouble);
  const at::Tensor addend = at::zeros({3, 2}, at::kDouble);
  const auto rows = [](std::vector<int64_t> ends,
                       std::vector<int64_t> columns) {
    return at::_sparse_csr_tensor_unsafe(
        at::tensor(ends, at::kLong), at::tensor(columns, at::kLong),
        at::randn({4}, at::kDouble), {3, 4},
        at::TensorOptions(at::kSparseCsr).dtype(at::kDouble));
  };
  for (const std::vector<int64_t>& columns :
       std::vector<std::vector<int64_t>>{{2, 0, 3, 1}, {1, 1, 0, 0}}) {
    const at::Tensor sparse = rows({0, 2, 2, 4}, columns);
    EXPECT_TRUE(at::equal(
        Call("addmm", "strided", {addend, sparse, dense}, {1, 1}).at(0),
        at::addmm(addend, sparse, dense)));
  }
  for (const at::Tensor& wrong :
       {rows({0, 2, 2, 4}, {2, 0, 3, 4}), rows({0, 2, 2, 4}, {2, 0, 3, -1}),
        rows({0, 2, 1, 4}, {2, 0, 3, 1}), rows({0, 2, 2, 5}, {2, 0, 3, 1}),
        rows({1, 2, 2, 4}, {2, 0, 3, 1})}) {
    EXPECT_NE(ErrorOf([&] {
                Call("addmm", "strided", {addend, wrong, dense}, {1, 1});
              }),
              "none");
  }
}

TEST(SparseOperatorsTest, OperandThatIsGivenTwiceStaysOneTensor) {
  DefineSparseOperators();
  // PyTorch adds a tensor of this layout to itself only.
  const at::Tensor sparse = Repeating().coalesce().to_sparse_csc();
  std::vector<at::Tensor> parts;
  std::vector<int64_t> layout;
  AppendParts(sparse, &parts, &layout);
  AppendParts(sparse, &parts, &layout, 0);
  const auto add = [&](const std::vector<int64_t>& described) {
    Stack stack = {parts, described, 1};
    c10::Dispatcher::singleton()
        .findSchemaOrThrow("djinn_sparse::add", "")
        .callBoxed(stack);
    return JoinResult({stack.at(0).toTensor(), stack.at(1).toTensor(),
                       stack.at(2).toTensor(), stack.at(3).toTensor()});
  };
  EXPECT_TRUE(at::equal(add(layout).values(), 2 * sparse.values()));
  std::vector<int64_t> wrong = layout;
  wrong[layout.size() / 2 + 1] += 1;
  EXPECT_THAT(ErrorOf([&] { add(wrong); }), HasSubstr("not there"));
}

TEST(SparseOperatorsTest, ReducedProductReturnsItsSourcesOnRequest) {
  const at::Tensor sparse = Repeating().coalesce().to_sparse_csr();
  const at::Tensor dense = at::randn({4, 5}, at::kDouble);
  const at::Tensor recorded = dense.clone().set_requires_grad(true);
  const auto [product, sources] =
      at::_sparse_mm_reduce_impl(sparse, recorded, "amax");
  const std::vector<at::Tensor> with =
      Call("_sparse_mm_reduce_impl", "", {sparse, dense}, {"amax", true});
  EXPECT_TRUE(at::equal(with.at(0), product));
  EXPECT_TRUE(at::equal(with.at(1), sources));
  EXPECT_FALSE(with.at(0).requires_grad());
  EXPECT_FALSE(dense.requires_grad());
  const std::vector<at::Tensor> without =
      Call("_sparse_mm_reduce_impl", "", {sparse, dense}, {"amax", false});
  EXPECT_TRUE(at::equal(without.at(0), product));
  EXPECT_EQ(without.at(1).numel(), 0);

  const at::Tensor ones = at::ones_like(product);
  const auto [of_sparse, of_dense] = at::_sparse_mm_reduce_impl_backward(
      sparse, ones, dense, "amax", sources, {true, true});
  const std::vector<at::Tensor> gradients = Call(
      "_sparse_mm_reduce_impl_backward", "", {sparse, ones, dense, sources},
      {"amax", c10::List<bool>({true, true})});
  EXPECT_TRUE(at::equal(gradients.at(0), of_sparse.values()));
  EXPECT_TRUE(at::equal(gradients.at(1), of_dense));
}

TEST(SparseOperatorsTest, SourceOutsideTheSparseOperandIsRefused) {
  const at::Tensor sparse = Repeating().coalesce().to_sparse_csr();
  const at::Tensor dense = at::ones({4, 5}, at::kDouble);
  const at::Tensor gradient = at::ones({3, 5}, at::kDouble);
  const at::Tensor sources = at::zeros({3, 5}, at::kLong);
  const c10::List<bool> both({true, true});
  const auto error_of = [&](const at::Tensor& of_product,
                            const at::Tensor& of_sources) {
    return ErrorOf([&] {
      Call("_sparse_mm_reduce_impl_backward", "",
           {sparse, of_product, dense, of_sources}, {"amin", both});
    });
  };
  EXPECT_EQ(error_of(gradient, sources), "none");
  for (const at::Tensor& wrong :
       {sources + 99, sources - 1, sources.to(at::kInt), sources.slice(1, 1)}) {
    EXPECT_THAT(error_of(gradient, wrong), HasSubstr("does not have"));
  }
  EXPECT_THAT(error_of(gradient.slice(1, 1), sources),
              HasSubstr("does not fit"));
}

TEST(SparseOperatorsTest, DiagonalOutsideTheMatrixIsRefused) {
  const at::Tensor diagonals = at::ones({3, 4}, at::kDouble);
  const auto spdiags = [&](const std::vector<int64_t>& offsets) {
    return Call("_spdiags", "", {diagonals, at::tensor(offsets, at::kLong)},
                {std::vector<int64_t>{4, 5}, c10::IValue()});
  };
  EXPECT_TRUE(at::equal(
      JoinResult(spdiags({-4, 0, 4})).to_dense(),
      at::_spdiags(diagonals, at::tensor({-4, 0, 4}, at::kLong), {4, 5})
          .to_dense()));
  // PyTorch's kernel would write before the memory of the result.
  EXPECT_THAT(ErrorOf([&] { spdiags({5, 0, 1}); }), HasSubstr("outside"));
  EXPECT_THAT(ErrorOf([&] { spdiags({0, -5, 1}); }), HasSubstr("outside"));
}

TEST(SparseOperatorsTest, BatchOfTriangularSystemsIsRefused) {
  const at::Tensor matrix = at::eye(3, at::kDouble).to_sparse_csr();
  const Stack flags = {true, false, false};
  const at::Tensor right = at::ones({3, 2}, at::kDouble);
  EXPECT_TRUE(at::equal(
      JoinResult(Call("triangular_solve", "", {right, matrix}, flags)), right));
  EXPECT_THAT(ErrorOf([&] {
                Call("triangular_solve", "", {right.expand({2, 3, 2}), matrix},
                     flags);
              }),
              HasSubstr("batches"));
}

TEST(SparseOperatorsTest, MalformedDescriptionIsRefused) {
  DefineSparseOperators();
  const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(
      "djinn_sparse::_coalesce", "");
  const std::vector<at::Tensor> parts = {at::zeros({1, 0}, at::kLong),
                                         at::zeros({0})};
  const std::vector<std::vector<int64_t>> layouts = {
      {},         {1},           {1, 0, 2, 3}, {1, 0, 1, -3}, {99, 0, 0},
      {-1, 0, 0}, {1, 0, -1, 3}, {2, 0, 1, 3}, {0, 0, 0},     {3, 0, 0},
  };
  for (const std::vector<int64_t>& layout : layouts) {
    SCOPED_TRACE(c10::IntArrayRef(layout));
    Stack stack = {parts, layout};
    EXPECT_NE(ErrorOf([&] { op.callBoxed(stack); }), "none");
  }
}

}  // namespace
}  // namespace djinn
