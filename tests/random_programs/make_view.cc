#include <algorithm>

#include "tests/random_programs/makers.h"

namespace djinn::random_programs {
namespace {

using Value = c10::IValue;

// Returns sizes with the same number of elements.
std::vector<int64_t> Refactored(Composer& c, int64_t elements) {
  if (c.Chance(0.2)) return {-1};
  std::vector<int64_t> sizes;
  int64_t left = elements;
  for (const int64_t factor : {2, 3, 2, 5}) {
    if (left > 0 && left % factor == 0 && c.Chance(0.6)) {
      sizes.push_back(factor);
      left /= factor;
    }
  }
  sizes.push_back(left);
  if (c.Chance(0.2)) sizes.push_back(1);
  if (c.Chance(0.3) && left > 0) sizes.front() = -1;
  return sizes;
}

void MakeAsStrided(Composer& c, int self) {
  const at::Tensor& t = c.tensor(self);
  const auto elements = static_cast<int64_t>(t.storage().nbytes()) /
                        static_cast<int64_t>(t.element_size());
  std::vector<int64_t> sizes, strides;
  int64_t reach = 0;
  for (int64_t d = c.Int(0, 3); d > 0; --d) {
    sizes.push_back(c.Int(1, 4));
    strides.push_back(c.Int(0, 4));
    reach += (sizes.back() - 1) * strides.back();
  }
  // The view may end beyond the storage now and then.
  const int64_t room = elements - reach - 1 + (c.Chance(0.05) ? 3 : 0);
  if (room < 0) return;
  c.Call("as_strided",
         {Slot{self}, Ints(sizes), Ints(strides), Value(c.Int(0, room))});
}

void MakeInPlaceView(Composer& c, int self, int64_t dims) {
  switch (c.Int(0, 3)) {
    case 0:
      c.Call("t_", {Slot{self}});
      return;
    case 1:
      if (dims < 2) return;
      c.Call("transpose_", {Slot{self}, Value(c.Int(0, dims - 1)),
                            Value(c.Int(0, dims - 1))});
      return;
    case 2:
      c.Call("squeeze_", {Slot{self}});
      return;
    default:
      c.Call("unsqueeze_", {Slot{self}, Value(c.Int(0, dims))});
  }
}

void MakePermutation(Composer& c, int self, int64_t dims) {
  std::vector<int64_t> order(dims);
  for (int64_t i = 0; i < dims; ++i) order[i] = i;
  for (int64_t i = dims - 1; i > 0; --i) {
    std::swap(order[i], order[c.Int(0, i)]);
  }
  c.Call("permute", {Slot{self}, Ints(order)});
}

void MakeExpansion(Composer& c, int self, std::vector<int64_t> wider) {
  for (int64_t& s : wider) s = s == 1 && c.Chance(0.7) ? c.Int(1, 4) : s;
  if (c.Chance(0.4)) wider.insert(wider.begin(), c.Int(1, 3));
  c.Call("expand", {Slot{self}, Ints(wider)});
}

void MakeViewOfAnotherType(Composer& c, int self) {
  const size_t width = c.tensor(self).element_size();
  static const std::vector<at::ScalarType> kFour = {at::kFloat, at::kInt};
  static const std::vector<at::ScalarType> kEight = {at::kDouble, at::kLong};
  static const std::vector<at::ScalarType> kOther = {at::kByte, at::kBFloat16,
                                                     at::kInt, at::kHalf};
  const at::ScalarType type = c.Chance(0.3) ? c.OneOf(kOther)
                              : width == 4  ? c.OneOf(kFour)
                              : width == 8  ? c.OneOf(kEight)
                                            : at::kShort;
  if (c.tensor(self).scalar_type() != at::kBool) {
    c.Call("view.dtype", {Slot{self}, DataTypeArgument(type)});
  }
}

}  // namespace

void MakeView(Composer& c) {
  const auto picked = c.PickAny();
  if (!picked.has_value()) return;
  const int self = *picked;
  const std::vector<int64_t> sizes = c.tensor(self).sizes().vec();
  const auto dims = static_cast<int64_t>(sizes.size());
  if (dims == 0) {
    if (c.Chance(0.5)) {
      c.Call("unsqueeze", {Slot{self}, Value(0)});
    } else {
      c.Call("expand", {Slot{self}, Ints({c.Int(1, 4), c.Int(1, 3)})});
    }
    return;
  }
  const int64_t dim = c.Int(0, dims - 1);
  const int64_t size = sizes[dim];
  const Value any_dim(c.Chance(0.2) ? dim - dims : dim);
  switch (c.Int(0, 23)) {
    case 0:
    case 1:
      if (size > 0) {
        c.Call("select.int", {Slot{self}, any_dim,
                              Value(c.Int(-size, size - 1 + c.Chance(0.02)))});
      }
      return;
    case 2:
    case 3:
    case 4:
      c.Call("slice.Tensor",
             {Slot{self}, any_dim, Value(c.Int(-1, std::max<int64_t>(size, 1))),
              Value(c.Int(0, size + 1)), Value(c.Int(1, 3))});
      return;
    case 5:
      c.Call("transpose.int", {Slot{self}, any_dim, Value(c.Int(0, dims - 1))});
      return;
    case 6:
      return MakePermutation(c, self, dims);
    case 7:
      c.Call("t", {Slot{self}});
      return;
    case 8:
      return MakeExpansion(c, self, sizes);
    case 9:
    case 10:
      return MakeAsStrided(c, self);
    case 11:
      if (dims >= 2) {
        const int64_t other = (dim + 1) % dims;
        c.Call("diagonal",
               {Slot{self}, Value(c.Int(-1, 1)), Value(dim), Value(other)});
      }
      return;
    case 12:
    case 13:
      c.Call(c.OneOf({"view", "reshape"}),
             {Slot{self}, Ints(Refactored(c, c.tensor(self).numel()))});
      return;
    case 14:
      if (size > 0) {
        c.Call("unfold", {Slot{self}, any_dim, Value(c.Int(1, size)),
                          Value(c.Int(1, 2))});
      }
      return;
    case 15:
      c.Call("chunk", {Slot{self}, Value(c.Int(1, 3)), any_dim});
      return;
    case 16:
      c.Call("split.Tensor", {Slot{self}, Value(c.Int(1, 3)), any_dim});
      return;
    case 17: {
      const int64_t first = c.Int(0, size);
      c.Call(
          "split_with_sizes",
          {Slot{self}, Ints({first, size - first + c.Chance(0.02)}), any_dim});
      return;
    }
    case 18:
      c.Call("narrow", {Slot{self}, any_dim, Value(c.Int(0, size / 2)),
                        Value(c.Int(0, size - size / 2))});
      return;
    case 19:
      c.Call(c.OneOf({"squeeze.dim", "unsqueeze"}), {Slot{self}, any_dim});
      return;
    case 20:
      c.Call(c.OneOf({"flatten.using_ints", "numpy_T", "squeeze", "alias",
                      "detach", "ravel"}),
             {Slot{self}});
      return;
    case 21:
      if (size <= 8) c.Call("unbind.int", {Slot{self}, any_dim});
      return;
    case 22:
      return MakeViewOfAnotherType(c, self);
    default:
      return MakeInPlaceView(c, self, dims);
  }
}

void MakeStorageChange(Composer& c) {
  const auto picked = c.PickAny();
  if (!picked.has_value()) return;
  const int self = *picked;
  switch (c.Int(0, 5)) {
    case 0:
    case 1:
      c.Call("resize_", {Slot{self}, Ints(c.Sizes())});
      return;
    case 2: {
      const auto source = c.Pick([&](const at::Tensor& t) {
        return t.scalar_type() == c.tensor(self).scalar_type();
      });
      if (source.has_value()) {
        c.Call("set_.source_Tensor", {Slot{self}, Slot{*source}});
      }
      return;
    }
    case 3: {
      const auto source = c.Pick([&](const at::Tensor& t) {
        // Both tensors must be inference tensors, or neither: a tensor that got
        // the data of the other kind would be of no kind.
        return t.is_inference() == c.tensor(self).is_inference() &&
               (t.scalar_type() == c.tensor(self).scalar_type() ||
                c.Chance(0.05));
      });
      if (!source.has_value()) return;
      Step step;
      step.kind = Step::Kind::kSetData;
      step.arguments = {Slot{self}, Slot{*source}};
      c.Add(std::move(step));
      return;
    }
    case 4:
      c.Call(c.OneOf({"alias", "detach"}), {Slot{self}});
      return;
    default:
      c.Call("detach_", {Slot{self}});
  }
}

}  // namespace djinn::random_programs
