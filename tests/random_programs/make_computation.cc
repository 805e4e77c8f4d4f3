#include "tests/random_programs/makers.h"

namespace djinn::random_programs {
namespace {

using Value = c10::IValue;

Value None() { return Value(); }

// Returns a live float tensor of these sizes, or a new one.
int FloatOf(Composer& c, at::ScalarType dtype, std::vector<int64_t> sizes) {
  const auto found = c.Pick([&](const at::Tensor& t) {
    return t.scalar_type() == dtype && t.sizes() == at::IntArrayRef(sizes);
  });
  return found.has_value() ? *found : c.Upload(c.Values(dtype, sizes));
}

std::optional<int> PickFloatOfDims(Composer& c, int64_t low, int64_t high) {
  return c.Pick([&](const at::Tensor& t) {
    return t.is_floating_point() && t.dim() >= low && t.dim() <= high;
  });
}

}  // namespace

void MakeReduction(Composer& c) {
  const auto picked = c.PickAny();
  if (!picked.has_value()) return;
  const int self = *picked;
  const int64_t dims = c.tensor(self).dim();
  const Value dim(dims > 0 ? c.Int(-dims, dims - 1) : 0);
  const Value keep(c.Chance(0.4));
  const Argument some =
      dims > 1 && c.Chance(0.4) ? Ints({0, -1}) : Ints({dim.toInt()});
  Composer::Named named;
  if (c.Chance(0.2)) named["dtype"] = DataTypeArgument(c.DataType());
  switch (c.Int(0, 8)) {
    case 0:
      c.Call(c.OneOf({"sum", "mean", "prod"}), {Slot{self}}, named);
      return;
    case 1:
    case 2:
      c.Call(c.OneOf({"sum.dim_IntList", "mean.dim", "nansum"}),
             {Slot{self}, some, keep}, named);
      return;
    case 3:
      c.Call(c.OneOf({"max", "min", "any", "all", "median", "std", "var",
                      "trace", "argmax", "argmin"}),
             {Slot{self}});
      return;
    case 4:
      c.Call(c.OneOf({"max.dim", "min.dim", "any.dim", "all.dim", "median.dim",
                      "argmax", "argmin", "mode"}),
             {Slot{self}, dim, keep});
      return;
    case 5:
      c.Call(c.OneOf({"amax", "amin", "logsumexp"}), {Slot{self}, some, keep});
      return;
    case 6:
      c.Call(c.OneOf({"var.dim", "std.dim", "var_mean.dim"}),
             {Slot{self}, some, Value(c.Chance(0.5)), keep});
      return;
    case 7:
      c.Call(c.OneOf({"linalg_vector_norm", "norm.Scalar"}), {Slot{self}});
      return;
    default:
      c.Call("prod.dim_int", {Slot{self}, dim, keep}, named);
  }
}

void MakeMatmul(Composer& c) {
  const auto picked = PickFloatOfDims(c, 1, 3);
  if (!picked.has_value()) return;
  const int self = *picked;
  const at::ScalarType dtype = c.tensor(self).scalar_type();
  const std::vector<int64_t> sizes = c.tensor(self).sizes().vec();
  const int64_t inner = sizes.back(), columns = c.Int(1, 4);
  if (c.tensor(self).numel() > 600) return;
  if (sizes.size() == 1) {
    const int other = FloatOf(c, dtype, {inner});
    if (other == kNoTensor) return;
    c.Call(c.OneOf({"dot", "matmul", "outer", "inner"}),
           {Slot{self}, Slot{other}});
    return;
  }
  if (sizes.size() == 3) {
    const int other = FloatOf(c, dtype, {sizes[0], inner, columns});
    if (other == kNoTensor) return;
    if (c.Chance(0.3)) {
      const int added = FloatOf(c, dtype, {sizes[0], sizes[1], columns});
      if (added == kNoTensor) return;
      c.Call(c.OneOf({"baddbmm", "baddbmm_"}),
             {Slot{added}, Slot{self}, Slot{other}});
    } else {
      c.Call(c.OneOf({"bmm", "matmul"}), {Slot{self}, Slot{other}});
    }
    return;
  }
  switch (c.Int(0, 6)) {
    case 0:
    case 1: {
      const int other = FloatOf(c, dtype, {inner, columns});
      if (other == kNoTensor) return;
      c.Call(c.OneOf({"mm", "matmul"}), {Slot{self}, Slot{other}});
      return;
    }
    case 2: {
      const int vector = FloatOf(c, dtype, {inner});
      if (vector == kNoTensor) return;
      c.Call(c.OneOf({"mv", "matmul"}), {Slot{self}, Slot{vector}});
      return;
    }
    case 3: {
      const int other = FloatOf(c, dtype, {inner, columns});
      if (other == kNoTensor) return;
      const std::string name = c.OneOf({"addmm", "addmm_"});
      const int added =
          FloatOf(c, dtype,
                  name == "addmm_" ? std::vector<int64_t>{sizes[0], columns}
                                   : std::vector<int64_t>{columns});
      if (added == kNoTensor) return;
      c.Call(name, {Slot{added}, Slot{self}, Slot{other}},
             {{"alpha", Value(c.Real())}, {"beta", Value(c.Int(0, 2))}});
      return;
    }
    case 4: {
      const int weight = FloatOf(c, dtype, {columns, inner});
      const int bias = FloatOf(c, dtype, {columns});
      if (weight == kNoTensor || bias == kNoTensor) return;
      c.Call("linear", {Slot{self}, Slot{weight},
                        c.Chance(0.5) ? Argument(Slot{bias}) : None()});
      return;
    }
    case 5: {
      const int other = FloatOf(c, dtype, {inner, columns});
      if (other == kNoTensor) return;
      c.Call("einsum",
             {Value(std::string("ij,jk->") + c.OneOf({"ik", "ki", "i", "ijk"})),
              SlotList{{self, other}}});
      return;
    }
    default: {
      const int other = FloatOf(c, dtype, {inner, columns});
      if (other == kNoTensor) return;
      const int out = c.Call("empty.memory_format", {Ints({0})},
                             {{"dtype", DataTypeArgument(dtype)}});
      if (out == kNoTensor) return;
      c.Call("mm.out", {Slot{self}, Slot{other}}, {{"out", Slot{out}}});
    }
  }
}

void MakeConcat(Composer& c) {
  const auto picked = c.Pick([](const at::Tensor& t) { return t.dim() > 0; });
  if (!picked.has_value()) return;
  const int64_t dims = c.tensor(*picked).dim();
  const int64_t dim = c.Int(0, dims - 1);
  const bool stack = c.Chance(0.3);
  SlotList list{{*picked}};
  for (int64_t more = c.Int(0, 2); more > 0; --more) {
    const auto other = c.Pick([&](const at::Tensor& t) {
      if (t.dim() != dims) return c.Chance(0.01);
      for (int64_t d = 0; d < dims; ++d) {
        if ((stack || d != dim) && t.size(d) != c.tensor(*picked).size(d)) {
          return false;
        }
      }
      return true;
    });
    list.indices.push_back(other.value_or(*picked));
  }
  if (stack) {
    c.Call("stack", {list, Value(c.Int(0, dims))});
    return;
  }
  if (c.Chance(0.15)) {
    const int out =
        c.Call("empty.memory_format", {Ints({0})},
               {{"dtype", DataTypeArgument(c.tensor(*picked).scalar_type())}});
    if (out != kNoTensor) {
      c.Call("cat.out", {list, Value(dim)}, {{"out", Slot{out}}});
    }
    return;
  }
  c.Call(c.OneOf({"cat", "cat", "concat", "hstack", "vstack"}),
         {list, Value(dim)});
}

void MakeOrdering(Composer& c) {
  const auto picked = c.Pick([](const at::Tensor& t) { return t.dim() > 0; });
  if (!picked.has_value()) return;
  const int self = *picked;
  const int64_t dim = c.Int(0, c.tensor(self).dim() - 1);
  const int64_t size = c.tensor(self).size(dim);
  switch (c.Int(0, 6)) {
    case 0:
      c.Call("sort", {Slot{self}, Value(dim), Value(c.Chance(0.5))});
      return;
    case 1:
      c.Call("argsort", {Slot{self}, Value(dim)});
      return;
    case 2:
      c.Call("topk", {Slot{self}, Value(c.Int(0, size)), Value(dim)});
      return;
    case 3:
      c.Call(c.OneOf({"cumsum", "cumprod", "cummax", "cummin", "logcumsumexp",
                      "cumsum_", "cumprod_"}),
             {Slot{self}, Value(dim)});
      return;
    case 4:
      c.Call("flip", {Slot{self}, Ints({dim})});
      return;
    case 5:
      c.Call(c.OneOf({"roll"}),
             {Slot{self}, Ints({c.Int(-2, 2)}), Ints({dim})});
      return;
    default:
      c.Call(c.OneOf({"repeat", "tile"}),
             {Slot{self},
              Ints(std::vector<int64_t>(c.tensor(self).dim(), c.Int(1, 2)))});
  }
}

namespace {

void MakeAttention(Composer& c, int query) {
  const std::vector<int64_t> sizes = c.tensor(query).sizes().vec();
  if (sizes.size() < 3 || c.tensor(query).numel() == 0) return;
  std::vector<int64_t> longer = sizes;
  longer[sizes.size() - 2] = c.Int(1, 5);
  const at::ScalarType dtype = c.tensor(query).scalar_type();
  const int key = FloatOf(c, dtype, longer);
  const int value = FloatOf(c, dtype, longer);
  if (key == kNoTensor || value == kNoTensor) return;
  c.Call("scaled_dot_product_attention",
         {Slot{query}, Slot{key}, Slot{value}, None(), Value(0.0),
          Value(c.Chance(0.4))});
}

}  // namespace

void MakeNetwork(Composer& c) {
  const auto picked = PickFloatOfDims(c, 1, 4);
  if (!picked.has_value()) return;
  const int self = *picked;
  const at::ScalarType dtype = c.tensor(self).scalar_type();
  const std::vector<int64_t> sizes = c.tensor(self).sizes().vec();
  const Value reduction(c.Int(0, 2));
  switch (c.Int(0, 11)) {
    case 0: {
      const int weight = FloatOf(c, dtype, {sizes.back()});
      if (weight == kNoTensor) return;
      c.Call("layer_norm", {Slot{self}, Ints({sizes.back()}),
                            c.Chance(0.7) ? Argument(Slot{weight}) : None(),
                            c.Chance(0.5) ? Argument(Slot{weight}) : None()});
      return;
    }
    case 1: {
      const int target = FloatOf(c, dtype, sizes);
      if (target == kNoTensor) return;
      c.Call(c.OneOf({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"}),
             {Slot{self}, Slot{target}, reduction});
      return;
    }
    case 2: {
      if (sizes.size() != 2 || sizes[0] == 0 || sizes[1] == 0) return;
      const int target = c.Upload(c.Indices(sizes[1], {sizes[0]}));
      if (target == kNoTensor) return;
      c.Call("cross_entropy_loss",
             {Slot{self}, Slot{target}, None(), reduction});
      return;
    }
    case 3: {
      if (sizes.size() != 4 || c.tensor(self).numel() == 0) return;
      const int weight =
          c.Upload(c.Values(dtype, {c.Int(1, 3), sizes[1], c.Int(1, 2), 1}));
      if (weight == kNoTensor) return;
      c.Call("conv2d", {Slot{self}, Slot{weight}});
      return;
    }
    case 4:
      if (sizes.size() < 3) return;
      c.Call(c.OneOf({"max_pool2d", "avg_pool2d"}),
             {Slot{self}, Ints({1, c.Int(1, 2)})});
      return;
    case 5:
      c.Call("dropout", {Slot{self}, Value(0.5), Value(c.Chance(0.7))});
      return;
    case 6:
      return MakeAttention(c, self);
    case 7: {
      if (sizes.size() < 2 || sizes[1] == 0) return;
      const int weight = FloatOf(c, dtype, {sizes[1]});
      if (weight == kNoTensor) return;
      c.Call("group_norm", {Slot{self}, Value(c.Chance(0.5) ? 1 : sizes[1]),
                            c.Chance(0.7) ? Argument(Slot{weight}) : None(),
                            c.Chance(0.5) ? Argument(Slot{weight}) : None()});
      return;
    }
    case 8: {
      const int target = FloatOf(c, dtype, sizes);
      if (target == kNoTensor) return;
      c.Call("binary_cross_entropy_with_logits",
             {Slot{self}, Slot{target}, None(), None(), reduction});
      return;
    }
    case 9:
      c.Call("constant_pad_nd",
             {Slot{self}, Ints({c.Int(-1, 2), c.Int(0, 2)}), Value(c.Real())});
      return;
    case 10:
      if (sizes.size() < 3) return;
      c.Call("adaptive_avg_pool2d",
             {Slot{self}, Ints({c.Int(1, 2), c.Int(1, 3)})});
      return;
    default:
      c.Call(c.OneOf({"softmax.int", "log_softmax.int", "glu"}),
             {Slot{self}, Value(static_cast<int64_t>(sizes.size()) - 1)});
  }
}

}  // namespace djinn::random_programs
