#include <algorithm>

#include "tests/random_programs/makers.h"

namespace djinn::random_programs {
namespace {

using Value = c10::IValue;

// More elements than travel inside a message.
constexpr int64_t kLargeElements = 40000;

Step SlotStep(Step::Kind kind, int slot) {
  Step step;
  step.kind = kind;
  step.arguments = {Slot{slot}};
  return step;
}

int BadIndex(Composer& c, at::IntArrayRef sizes, int64_t limit) {
  at::Tensor indices = c.Indices(limit, sizes);
  indices.reshape({-1})[0] = c.Chance(0.5) ? limit + c.Int(0, 5) : -limit - 3;
  return c.Upload(indices);
}

// Divides integers by zero.
void MakeBadDivision(Composer& c) {
  const auto self = c.Pick([](const at::Tensor& t) {
    return c10::isIntegralType(t.scalar_type(), false) && t.numel() > 0;
  });
  if (!self.has_value()) return;
  const int zeros = c.Call("zeros_like", {Slot{*self}});
  if (zeros == kNoTensor) return;
  const std::string mark = c.Chance(0.4) ? "_" : "";
  if (c.Chance(0.3)) {
    c.Call("div" + mark + ".Tensor_mode", {Slot{*self}, Slot{zeros}},
           {{"rounding_mode", Value(c.OneOf({"floor", "trunc"}))}});
  } else {
    c.Call(c.OneOf({"remainder", "fmod"}) + mark + ".Tensor",
           {Slot{*self}, Slot{zeros}});
  }
}

void MakeBadIndex(Composer& c) {
  const auto self =
      c.Pick([](const at::Tensor& t) { return t.dim() > 0 && t.numel() > 0; });
  if (!self.has_value()) return;
  const at::Tensor& t = c.tensor(*self);
  const int64_t dim = c.Int(0, t.dim() - 1);
  const std::string mark = c.Chance(0.5) ? "_" : "";
  switch (c.Int(0, 5)) {
    case 0: {
      const int index = BadIndex(c, {2}, t.size(dim));
      if (index == kNoTensor) return;
      c.Call("index_select", {Slot{*self}, Value(dim), Slot{index}});
      return;
    }
    case 1: {
      const int index = BadIndex(c, t.sizes(), t.size(dim));
      if (index == kNoTensor) return;
      if (c.Chance(0.5)) {
        c.Call("gather", {Slot{*self}, Value(dim), Slot{index}});
      } else {
        c.Call("scatter" + mark + ".value",
               {Slot{*self}, Value(dim), Slot{index}, Value(1)});
      }
      return;
    }
    case 2: {
      const int index = BadIndex(c, {2}, t.size(0));
      if (index == kNoTensor) return;
      if (c.Chance(0.5)) {
        c.Call("index.Tensor", {Slot{*self}, SlotList{{index}}});
      } else {
        c.Call("index_put_", {Slot{*self}, SlotList{{index}},
                              Value(c.Values(t.scalar_type(), {}))});
      }
      return;
    }
    case 3: {
      const int index = BadIndex(c, {3}, t.numel());
      if (index == kNoTensor) return;
      c.Call("take", {Slot{*self}, Slot{index}});
      return;
    }
    case 4: {
      const int index = BadIndex(c, {1}, t.size(dim));
      if (index == kNoTensor) return;
      c.Call("index_fill" + mark + ".int_Scalar",
             {Slot{*self}, Value(dim), Slot{index}, Value(2)});
      return;
    }
    default: {
      const auto rows = c.Pick([](const at::Tensor& table) {
        return table.dim() == 2 && table.is_floating_point() &&
               table.numel() > 0;
      });
      if (!rows.has_value()) return;
      const int index = BadIndex(c, {3}, c.tensor(*rows).size(0));
      if (index == kNoTensor) return;
      c.Call("embedding", {Slot{*rows}, Slot{index}});
    }
  }
}

}  // namespace

void MakeFactory(Composer& c) {
  const Composer::Named named = {{"dtype", DataTypeArgument(c.DataType())}};
  switch (c.Int(0, 7)) {
    case 0:
      c.Call("zeros", {Ints(c.Sizes())}, named);
      return;
    case 1:
      c.Call("ones", {Ints(c.Sizes())}, named);
      return;
    case 2:
      c.Call("full", {Ints(c.Sizes()), Value(c.Real())}, named);
      return;
    case 3:
      c.Call("arange.start_step",
             {Value(c.Int(-5, 5)), Value(c.Int(6, 20)), Value(c.Int(1, 3))},
             named);
      return;
    case 4:
      c.Call("linspace", {Value(-1.5), Value(c.Real()), Value(c.Int(1, 9))});
      return;
    case 5:
      c.Call("eye", {Value(c.Int(1, 5))}, named);
      return;
    default: {
      const int made = c.Call("empty.memory_format", {Ints(c.Sizes())}, named);
      if (made == kNoTensor || !c.Chance(0.8)) return;
      const auto source = c.Pick([&](const at::Tensor& t) {
        return t.sizes() == c.tensor(made).sizes();
      });
      if (source.has_value() && c.Chance(0.5)) {
        c.Call("copy_", {Slot{made}, Slot{*source}});
      } else {
        c.Call("fill_.Scalar", {Slot{made}, Value(c.Int(-3, 3))});
      }
    }
  }
}

void MakeUpload(Composer& c) {
  if (c.Chance(0.02)) {
    const int large =
        c.Upload(c.Values(c.FloatType(), {kLargeElements / 200, 200}));
    if (large == kNoTensor) return;
    // The whole tensor is used only through views.
    c.Call("slice.Tensor", {Slot{large}, Value(0), Value(c.Int(0, 190)),
                            Value(195), Value(c.Int(1, 50))});
    return;
  }
  at::Tensor values = c.Values(c.DataType(), c.Sizes());
  if (values.dim() >= 2 && c.Chance(0.2)) values = values.transpose(0, 1);
  c.Upload(values);
}

void MakeRandomDraw(Composer& c) {
  if (c.Chance(0.08)) {
    Step step;
    step.kind = Step::Kind::kSeed;
    step.arguments = {Value(c.Int(0, 1000))};
    c.Add(std::move(step));
    return;
  }
  const Composer::Named named = {{"dtype", DataTypeArgument(c.FloatType())}};
  switch (c.Int(0, 7)) {
    case 0:
      c.Call(c.OneOf({"rand", "randn"}), {Ints(c.Sizes())}, named);
      return;
    case 1:
      c.Call("randint.low",
             {Value(c.Int(-5, 0)), Value(c.Int(1, 9)), Ints(c.Sizes())});
      return;
    case 2:
      c.Call("randperm", {Value(c.Int(0, 12))});
      return;
    case 3:
      c.Call("dropout", {Slot{c.PickFloat()}, Value(c.Chance(0.2) ? 0.0 : 0.4),
                         Value(c.Chance(0.8))});
      return;
    case 4: {
      const int probabilities = c.Call("rand", {Ints(c.Sizes())}, named);
      if (probabilities == kNoTensor) return;
      c.Call(c.OneOf({"bernoulli", "bernoulli"}), {Slot{probabilities}});
      return;
    }
    case 5:
      c.Call(c.OneOf({"rand_like", "randn_like"}), {Slot{c.PickFloat()}});
      return;
    default: {
      const auto self = c.PickAny();
      if (!self.has_value()) return;
      switch (c.Int(0, 4)) {
        case 0:
        case 1:
          c.Call(c.OneOf({"normal_", "uniform_"}), {Slot{*self}});
          return;
        case 2:
          c.Call("random_.from", {Slot{*self}, Value(0), Value(9)});
          return;
        case 3:
          c.Call("bernoulli_.float", {Slot{*self}, Value(0.3)});
          return;
        default:
          c.Call("exponential_", {Slot{*self}});
      }
    }
  }
}

void MakeGradient(Composer& c) {
  switch (c.Int(0, 5)) {
    case 0:
    case 1: {
      const auto leaf = c.Pick([](const at::Tensor& t) {
        return t.is_floating_point() && t.is_leaf() && !t.requires_grad() &&
               !t.is_inference();
      });
      Step step =
          SlotStep(Step::Kind::kRequiresGrad, leaf.value_or(c.PickFloat()));
      step.arguments.emplace_back(Value(true));
      c.Add(std::move(step));
      return;
    }
    case 2:
    case 3: {
      const auto root = c.Pick([](const at::Tensor& t) {
        return t.requires_grad() && !t.is_leaf();
      });
      if (!root.has_value()) return;
      Step step = SlotStep(Step::Kind::kBackward, *root);
      step.arguments.emplace_back(Value(c.Chance(0.5)));
      c.Add(std::move(step));
      return;
    }
    default: {
      const auto leaf = c.Pick([](const at::Tensor& t) {
        return t.is_leaf() && t.requires_grad() && t.grad().defined();
      });
      if (leaf.has_value()) c.Add(SlotStep(Step::Kind::kGrad, *leaf));
    }
  }
}

void MakeFailure(Composer& c) {
  switch (c.Int(0, 6)) {
    case 0:
    case 1:
    case 2:
      return MakeBadIndex(c);
    case 3:
    case 4:
      return MakeBadDivision(c);
    case 5: {
      const int64_t size = c.Int(2, 3);
      const int singular = c.Call("ones", {Ints({size, size})});
      if (singular == kNoTensor) return;
      if (c.Chance(0.5)) {
        c.Call("linalg_inv", {Slot{singular}});
      } else {
        const int negative = c.Call("neg", {Slot{singular}});
        if (negative != kNoTensor) c.Call("linalg_cholesky", {Slot{negative}});
      }
      return;
    }
    default: {
      const int bad = c.Call("full", {Ints({3}), Value(-1.0)});
      if (bad == kNoTensor) return;
      if (c.Chance(0.5)) {
        c.Call("bernoulli", {Slot{bad}});
      } else {
        c.Call("multinomial", {Slot{bad}, Value(2)});
      }
    }
  }
}

void MakeRead(Composer& c) {
  const auto slot = c.PickAny();
  if (slot.has_value()) c.Add(SlotStep(Step::Kind::kRead, *slot));
}

void MakeDrop(Composer& c) {
  if (c.live().size() > 3) {
    c.Drop(c.live()[c.Int(0, static_cast<int64_t>(c.live().size()) - 1)]);
  }
}

}  // namespace djinn::random_programs
