#include <ATen/ExpandUtils.h>

#include <algorithm>

#include "tests/random_programs/makers.h"

namespace djinn::random_programs {
namespace {

using Value = c10::IValue;

Argument Index(Composer& c, const at::Tensor& indices) {
  const int slot = c.Upload(indices);
  return Slot{slot};
}

bool Missing(const Argument& argument) {
  return std::get<Slot>(argument).index == kNoTensor;
}

// Makes a call of index, index_put_ or index_put, with one or two index tensors
// or with a mask.
void MakeAdvancedIndex(Composer& c, int self) {
  const std::vector<int64_t> sizes = c.tensor(self).sizes().vec();
  SlotList indices;
  if (c.Chance(0.3)) {
    const int mask =
        c.Chance(0.5)
            ? c.Call("gt.Scalar", {Slot{self}, Value(c.Real())})
            : c.Upload(c.Values(at::kBool, at::IntArrayRef(sizes).slice(
                                               0, c.Int(1, sizes.size()))));
    if (mask == kNoTensor) return;
    indices.indices = {mask};
  } else {
    const std::vector<int64_t> shape(c.Int(0, 2), c.Int(1, 3));
    for (const int64_t size : sizes) {
      if (size == 0) return;
      if (c.Chance(0.35)) {
        indices.indices.push_back(kNoTensor);
        continue;
      }
      const int index = c.Upload(c.Indices(size, shape));
      if (index == kNoTensor) return;
      indices.indices.push_back(index);
    }
    if (std::all_of(indices.indices.begin(), indices.indices.end(),
                    [](int index) { return index == kNoTensor; })) {
      return;
    }
    while (indices.indices.back() == kNoTensor) indices.indices.pop_back();
  }
  if (c.Chance(0.5)) {
    c.Call("index.Tensor", {Slot{self}, indices});
    return;
  }
  const at::ScalarType dtype = c.tensor(self).scalar_type();
  Argument values = Value(c.Values(dtype, {}));
  if (c.Chance(0.6)) {
    const int slot = c.Upload(c.Values(dtype, {}));
    if (slot == kNoTensor) return;
    values = Slot{slot};
  }
  const bool accumulate = c.Chance(0.4);
  c.Call(c.OneOf({"index_put_", "index_put", "index_put_"}),
         {Slot{self}, indices, values, Value(accumulate)});
}

void MakeMasked(Composer& c, int self) {
  const at::Tensor& t = c.tensor(self);
  const int mask = c.Chance(0.5)
                       ? c.Call("gt.Scalar", {Slot{self}, Value(c.Real())})
                       : c.Upload(c.Values(at::kBool, t.sizes()));
  if (mask == kNoTensor) return;
  const std::string mark = c.Chance(0.5) ? "_" : "";
  switch (c.Int(0, 4)) {
    case 0:
    case 1:
      c.Call("masked_fill" + mark + ".Scalar",
             {Slot{self}, Slot{mask}, Value(c.Real())});
      return;
    case 2:
      c.Call("masked_fill" + mark + ".Tensor",
             {Slot{self}, Slot{mask}, Value(c.Values(t.scalar_type(), {}))});
      return;
    case 3:
      c.Call("masked_select", {Slot{self}, Slot{mask}});
      return;
    default:
      c.Call("masked_scatter" + mark, {Slot{self}, Slot{mask}, Slot{self}});
  }
}

void MakeScatter(Composer& c, int self, int64_t dim) {
  const at::Tensor& t = c.tensor(self);
  std::vector<int64_t> sizes = t.sizes().vec();
  for (int64_t& size : sizes) size = size > 0 ? c.Int(1, size) : 0;
  const Argument index = Index(c, c.Indices(t.size(dim), sizes));
  if (Missing(index)) return;
  const std::string mark = c.Chance(0.5) ? "_" : "";
  const auto source = [&] {
    return Slot{c.Upload(c.Values(t.scalar_type(), sizes))};
  };
  switch (c.Int(0, 4)) {
    case 0:
    case 1:
      c.Call("gather", {Slot{self}, Value(dim), index});
      return;
    case 2:
      c.Call("scatter" + mark + ".value",
             {Slot{self}, Value(dim), index, Value(c.Int(-3, 3))});
      return;
    case 3: {
      const Slot from = source();
      if (from.index == kNoTensor) return;
      c.Call("scatter" + mark + ".src", {Slot{self}, Value(dim), index, from});
      return;
    }
    default: {
      const Slot from = source();
      if (from.index == kNoTensor) return;
      c.Call("scatter_add" + mark, {Slot{self}, Value(dim), index, from});
    }
  }
}

void MakeIndexRows(Composer& c, int self, int64_t dim) {
  const at::Tensor& t = c.tensor(self);
  const int64_t count = c.Int(1, 4);
  const Argument index = Index(c, c.Indices(t.size(dim), {count}));
  if (Missing(index)) return;
  std::vector<int64_t> sizes = t.sizes().vec();
  sizes[dim] = count;
  const std::string mark = c.Chance(0.5) ? "_" : "";
  switch (c.Int(0, 4)) {
    case 0:
    case 1:
      c.Call("index_select", {Slot{self}, Value(dim), index});
      return;
    case 2:
      c.Call("index_fill" + mark + ".int_Scalar",
             {Slot{self}, Value(dim), index, Value(c.Int(-3, 3))});
      return;
    default: {
      const int source = c.Upload(c.Values(t.scalar_type(), sizes));
      if (source == kNoTensor) return;
      c.Call(c.OneOf({"index_add", "index_copy"}) + mark,
             {Slot{self}, Value(dim), index, Slot{source}});
    }
  }
}

}  // namespace

void MakeIndexing(Composer& c) {
  const auto picked =
      c.Pick([](const at::Tensor& t) { return t.dim() > 0 && t.numel() > 0; });
  if (!picked.has_value()) return;
  const int self = *picked;
  const int64_t dim = c.Int(0, c.tensor(self).dim() - 1);
  switch (c.Int(0, 8)) {
    case 0:
    case 1:
    case 2:
      return MakeAdvancedIndex(c, self);
    case 3:
    case 4:
      return MakeMasked(c, self);
    case 5:
      return MakeScatter(c, self, dim);
    case 6:
      return MakeIndexRows(c, self, dim);
    case 7:
      switch (c.Int(0, 3)) {
        case 0: {
          const Argument index =
              Index(c, c.Indices(c.tensor(self).numel(), {c.Int(1, 4)}));
          if (!Missing(index)) c.Call("take", {Slot{self}, index});
          return;
        }
        case 1:
          c.Call("nonzero", {Slot{self}});
          return;
        case 2:
          c.Call(c.OneOf({"argwhere", "count_nonzero"}), {Slot{self}});
          return;
        default: {
          const auto rows = c.Pick([](const at::Tensor& t) {
            return t.dim() == 2 && t.is_floating_point() && t.size(0) > 0;
          });
          if (!rows.has_value()) return;
          const Argument index =
              Index(c, c.Indices(c.tensor(*rows).size(0), {c.Int(1, 4)}));
          if (!Missing(index)) c.Call("embedding", {Slot{*rows}, index});
        }
      }
      return;
    default: {
      // Skips views, because for a view these operators return as much memory
      // as the view's storage has.
      if (c.tensor(self).storage_offset() != 0 ||
          !c.tensor(self).is_contiguous()) {
        return;
      }
      const std::string name = c.OneOf({"select_scatter", "slice_scatter"});
      std::vector<int64_t> sizes = c.tensor(self).sizes().vec();
      if (name == "select_scatter") sizes.erase(sizes.begin() + dim);
      const int source =
          c.Upload(c.Values(c.tensor(self).scalar_type(), sizes));
      if (source == kNoTensor) return;
      if (name == "select_scatter") {
        c.Call(name, {Slot{self}, Slot{source}, Value(dim), Value(0)});
      } else {
        c.Call(name, {Slot{self}, Slot{source}, Value(dim)});
      }
    }
  }
}

}  // namespace djinn::random_programs
