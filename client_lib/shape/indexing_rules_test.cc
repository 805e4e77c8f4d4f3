#include "client_lib/shape/rule_check.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

TEST(IndexingRulesTest, IndexSelect) {
  for (const at::Tensor& x : Layouts({2, 3, 4, 5})) {
    for (int64_t dim : {0, 1, -1}) {
      CheckRule("aten::index_select", {x, dim, MakeIndex({7})});
      CheckRule("aten::index_select", {x, dim, MakeIndex({0})});
      CheckRule("aten::index_select", {x, dim, MakeIndex({})});
      CheckRule("aten::index_select", {x, dim, MakeIndex({2}, at::kInt)});
    }
  }
  CheckRule("aten::index_select", {Make({}), 0, MakeIndex({1})});
  CheckRule("aten::index_select", {Make({2, 0}), 0, MakeIndex({3})});
}

TEST(IndexingRulesTest, Embedding) {
  for (const at::Tensor& weight : Layouts({4, 3})) {
    for (const at::Tensor& index : Zoo(at::kLong)) {
      CheckRule("aten::embedding", {weight, index});
    }
  }
  CheckRule("aten::embedding", {Make({4, 3}), MakeIndex({2, 2}, at::kInt)});
  for (const at::Tensor& grad : Layouts({2, 5, 3})) {
    CheckRule("aten::embedding_dense_backward",
              {grad, MakeIndex({2, 5}), 4, -1, false});
  }
}

TEST(IndexingRulesTest, EmbeddingBag) {
  for (at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const at::Tensor& weight : Layouts({5, 3}, dtype)) {
      for (int64_t mode : {0, 1, 2}) {
        for (bool include_last : {false, true}) {
          for (at::ScalarType index : {at::kLong, at::kInt}) {
            const at::Tensor indices = MakeIndex({7}, index);
            const at::Tensor offsets = MakeIndex({4}, index);
            // The last offset is the number of indices.
            offsets[3].fill_(7);
            for (const char* name :
                 {"aten::_embedding_bag", "aten::_embedding_bag_forward_only",
                  "aten::embedding_bag"}) {
              CheckRule(name, {weight, indices, offsets, false, mode, false,
                               None(), include_last});
              if (mode != 0) continue;
              CheckRule(name, {weight, indices, offsets, false, mode, false,
                               Make({7}, dtype), include_last});
            }
            CheckRule("aten::_embedding_bag",
                      {weight, indices, offsets, false, mode, false, None(),
                       include_last, 2});
          }
        }
      }
    }
  }
  CheckRule("aten::_embedding_bag_dense_backward",
            {Make({2, 3}), MakeIndex({7}), MakeIndex({7}), MakeIndex({2}),
             MakeIndex({2}), 5, false, 0, None()});
  CheckRule("aten::_embedding_bag_per_sample_weights_backward",
            {Make({2, 3}), Make({5, 3}), MakeIndex({7}), MakeIndex({2}),
             MakeIndex({7}), 0});
}

TEST(IndexingRulesTest, Take) {
  for (const at::Tensor& index : Zoo(at::kLong)) {
    CheckRule("aten::take", {Make({2, 3}), index});
  }
}

TEST(IndexingRulesTest, ReorderingKeepsTheLayout) {
  for (const at::Tensor& x : Layouts({2, 3, 4, 5})) {
    for (std::vector<int64_t> dims :
         std::vector<std::vector<int64_t>>{{}, {0}, {-1, 1}, {3}}) {
      CheckRule("aten::flip", {x, Ints(dims)});
      CheckRule(
          "aten::roll",
          {x, Ints(std::vector<int64_t>(std::max<size_t>(dims.size(), 1), 1)),
           Ints(dims)});
    }
    CheckRule("aten::roll", {x, Ints({0, 6}), Ints({1, 2})});
    CheckRule("aten::roll", {x, Ints({-3}), Ints({-1})});
    CheckRule("aten::rot90", {x, 1, Ints({0, 1})});
    CheckRule("aten::rot90", {x, 2, Ints({2, 3})});
    CheckRule("aten::rot90", {x, 3, Ints({1, 3})});
    CheckRule("aten::rot90", {x, 4, Ints({1, 3})});
  }
  for (const at::Tensor& x : Zoo()) {
    CheckRule("aten::flip", {x, Ints({})});
    CheckRule("aten::roll", {x, Ints({2})});
    if (x.dim() > 0) {
      CheckRule("aten::flip", {x, Ints({0})});
      CheckRule("aten::roll", {x, Ints({1}), Ints({0})});
    }
  }
}

TEST(IndexingRulesTest, Repeat) {
  for (const at::Tensor& x : Layouts({2, 3})) {
    CheckRule("aten::repeat", {x, Ints({2, 2})});
    CheckRule("aten::repeat", {x, Ints({4, 1, 2})});
    CheckRule("aten::repeat", {x, Ints({0, 2})});
  }
  CheckRule("aten::repeat", {Make({}), Ints({})});
  CheckRule("aten::repeat", {Make({}), Ints({3})});
}

TEST(IndexingRulesTest, SortedSearch) {
  const at::Tensor sorted = Make({4});
  for (const at::Tensor& x : Zoo()) {
    CheckRule("aten::searchsorted.Tensor", {sorted, x});
    CheckRule("aten::searchsorted.Tensor", {sorted, x, true});
    CheckRule("aten::bucketize.Tensor", {x, sorted});
  }
  CheckRule("aten::searchsorted.Tensor", {Make({2, 4}), Make({2, 7})});
  CheckRule("aten::searchsorted.Scalar", {sorted, 0.5});
  CheckRule("aten::bucketize.Scalar", {0.5, sorted, true});
}

TEST(IndexingRulesTest, Others) {
  for (const at::Tensor& x : Zoo()) {
    CheckRule("aten::nonzero_static", {x, 3});
  }
  for (const at::Tensor& x : Layouts({3, 4, 5})) {
    CheckRule("aten::unfold_copy", {x, 1, 2, 1});
    CheckRule("aten::unfold_copy", {x, -1, 3, 2});
    CheckRule("aten::masked_scatter_backward",
              {x, Make({3, 4, 5}, at::kBool), Ints({6, 10})});
    using Indices = c10::List<std::optional<at::Tensor>>;
    const at::Tensor index = MakeIndex({2});
    const at::Tensor column = MakeIndex({6, 1});
    CheckRule("aten::_unsafe_masked_index",
              {x, Make({2, 4, 5}, at::kBool), Indices({index}), 0});
    CheckRule(
        "aten::_unsafe_masked_index",
        {x, Make({}, at::kBool), Indices({std::nullopt, index, column}), 0});
    CheckRule(
        "aten::_unsafe_masked_index",
        {x, Make({}, at::kBool), Indices({index, std::nullopt, column}), 0});
    CheckRule(
        "aten::_unsafe_masked_index_put_accumulate",
        {x, Make({2, 4, 5}, at::kBool), Indices({index}), Make({2, 4, 5})});
  }
  CheckRule("aten::_embedding_bag_backward",
            {Make({2, 3}), MakeIndex({7}), MakeIndex({2}), MakeIndex({7}),
             MakeIndex({2}), MakeIndex({2}), 5, false, 0, false, None()});
  CheckRule("aten::unfold_backward", {Make({2, 3, 2}), Ints({2, 4}), 1, 2, 1});
}

TEST(IndexingRulesTest, RejectWhatTheKernelsReject) {
  const at::Tensor x = Make({2, 3});
  CheckRejected("aten::index_select", {x, 2, MakeIndex({1})});
  CheckRejected("aten::index_select", {x, 0, MakeIndex({1, 1})});
  CheckRejected("aten::index_select", {Make({2, 0}), 1, MakeIndex({1})});
  CheckRejected("aten::index_select", {x, 0, Make({1})});
  CheckRejected("aten::embedding", {Make({3}), MakeIndex({1})});
  CheckRejected("aten::embedding", {x, Make({1})});
  CheckRejected("aten::take", {x, MakeIndex({1}, at::kInt)});
  CheckRejected("aten::flip", {x, Ints({0, 0})});
  CheckRejected("aten::flip", {x, Ints({2})});
  CheckRejected("aten::roll", {x, Ints({1, 1}), Ints({0})});
  CheckRejected("aten::roll", {MakeNumber(1), Ints({0}), Ints({0})});
  CheckRejected("aten::roll", {x, Ints({}), Ints({0})});
  CheckRejected("aten::repeat", {x, Ints({2})});
  CheckRejected("aten::searchsorted.Tensor", {Make({2, 4}), Make({3, 7})});
}

TEST(IndexingRulesTest, IndexPut) {
  const c10::IValue one(c10::List<std::optional<at::Tensor>>(
      {std::optional<at::Tensor>(MakeIndex({2}))}));
  for (const at::Tensor& x : Layouts({3, 4})) {
    if (x.stride(0) == 0 || x.stride(1) == 0) continue;
    CheckRule("aten::index_put", {x, one, Make({2, 4})});
  }
  CheckRejected("aten::index_put", {Make({}), one, Make({})});
  CheckRejected("aten::index_put", {Make({3, 4}), one, Make({5})});
  CheckRejected("aten::index_put", {Make({3, 4}), one, Make({2, 4, 1})});
  CheckRejected("aten::index_put", {Make({0, 4}), one, Make({})});
  const auto indices = [](const at::Tensor& first, const at::Tensor& second) {
    return c10::IValue(c10::List<std::optional<at::Tensor>>(
        {std::optional(first), std::optional(second)}));
  };
  CheckRejected(
      "aten::index_put",
      {Make({3, 4}), indices(MakeIndex({2}), MakeIndex({3})), Make({})});
  CheckRejected("aten::index_put",
                {Make({3, 4}), indices(MakeIndex({2}), Make({2})), Make({})});
  CheckRule(
      "aten::index_put",
      {Make({3, 4}), indices(MakeIndex({2, 1}), MakeIndex({3})), Make({3})});
  CheckRule("aten::index_put",
            {Make({0, 4}), indices(MakeIndex({0}), MakeIndex({1})), Make({})});
  CheckRejected("aten::index_put", {Make({3, 4}), one, Make({3, 4})});
  const c10::List<std::optional<at::Tensor>> mask(
      {std::optional<at::Tensor>(Make({2}, at::kBool))});
  CheckRule("aten::index_put", {Make({2, 4}), mask, Make({})});
  CheckRejected("aten::index_put", {Make({3, 4}), mask, Make({})});
}

}  // namespace
}  // namespace djinn
