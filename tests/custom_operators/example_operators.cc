// A library of operators that a program and a worker may both load: a forward
// and a backward kernel with an autograd formula between them and an autocast
// kernel, one operator that writes in place, one whose result's size depends on
// data, one that returns a list, and one that ends its process.
#include <ATen/autocast_mode.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace {

using torch::Tensor;

Tensor BendOnCpu(const Tensor& x, double scale) {
  TORCH_CHECK(x.scalar_type() == torch::kFloat, "bend takes float32, not ",
              x.scalar_type());
  const Tensor from = x.contiguous();
  Tensor bent = torch::empty_like(from);
  const float* const source = from.const_data_ptr<float>();
  float* const target = bent.mutable_data_ptr<float>();
  for (int64_t i = 0; i < from.numel(); ++i) {
    target[i] =
        source[i] / (1 + static_cast<float>(scale) * source[i] * source[i]);
  }
  return bent;
}

Tensor BendBackwardOnCpu(const Tensor& gradient, const Tensor& x,
                         double scale) {
  TORCH_CHECK(gradient.sizes() == x.sizes(), "bend_backward takes equal sizes");
  const Tensor square = scale * x * x;
  return gradient * (1 - square) / ((1 + square) * (1 + square));
}

// The results have the operand's type and sizes, and are dense.
Tensor BendOfMeta(const Tensor& x, double) {
  TORCH_CHECK(x.scalar_type() == torch::kFloat, "bend takes float32, not ",
              x.scalar_type());
  return torch::empty_like(x, x.options(), torch::MemoryFormat::Contiguous);
}

Tensor BendBackwardOfMeta(const Tensor& gradient, const Tensor& x, double) {
  TORCH_CHECK(gradient.sizes() == x.sizes(), "bend_backward takes equal sizes");
  return torch::empty_like(gradient);
}

Tensor Bend(const Tensor& x, double scale) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("example::bend", "")
                             .typed<Tensor(const Tensor&, double)>();
  return op.call(x, scale);
}

class BendFunction : public torch::autograd::Function<BendFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context,
                        const Tensor& x, double scale) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    context->save_for_backward({x});
    context->saved_data["scale"] = scale;
    return Bend(x, scale);
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      torch::autograd::variable_list gradients) {
    static const auto op =
        c10::Dispatcher::singleton()
            .findSchemaOrThrow("example::bend_backward", "")
            .typed<Tensor(const Tensor&, const Tensor&, double)>();
    return {op.call(gradients[0], context->get_saved_variables()[0],
                    context->saved_data["scale"].toDouble()),
            Tensor()};
  }
};

Tensor BendWithGradient(const Tensor& x, double scale) {
  return BendFunction::apply(x, scale);
}

// Computes in float32 in autocast regions, as torchvision's operators do.
Tensor BendInFloat32(const Tensor& x, double scale) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(
      c10::DispatchKey::AutocastCPU);
  return Bend(at::autocast::cached_cast(torch::kFloat, x, torch::kCPU), scale)
      .to(x.scalar_type());
}

Tensor& ClipOnCpu(Tensor& x, double limit) { return x.clamp_(-limit, limit); }

Tensor PositivesOnCpu(const Tensor& x) { return x.masked_select(x > 0); }

std::vector<Tensor> HalvesOnCpu(const Tensor& x) {
  const int64_t half = x.size(0) / 2;
  return {x.slice(0, 0, half).clone(), x.slice(0, half).clone()};
}

// Ends the process, unless the operand is empty.
Tensor DieOnCpu(const Tensor& x) {
  if (x.numel() > 0) std::abort();
  return torch::empty_like(x);
}

Tensor DieOfMeta(const Tensor& x) { return torch::empty_like(x); }

std::vector<Tensor> HalvesOfMeta(const Tensor& x) { return HalvesOnCpu(x); }

}  // namespace

TORCH_LIBRARY(example, m) {
  m.def("bend(Tensor x, float scale) -> Tensor");
  m.def("bend_backward(Tensor gradient, Tensor x, float scale) -> Tensor");
  m.def("clip_(Tensor(a!) x, float limit) -> Tensor(a!)");
  m.def("positives(Tensor x) -> Tensor");
  for (const char* name : {"asks", "reads", "raises", "ends"}) {
    m.def((std::string(name) + "(Tensor x) -> Tensor").c_str());
  }
  m.def("halves(Tensor x) -> Tensor[]");
  m.def("die(Tensor x) -> Tensor");
}

TORCH_LIBRARY_IMPL(example, CPU, m) {
  m.impl("bend", BendOnCpu);
  m.impl("bend_backward", BendBackwardOnCpu);
  m.impl("clip_", ClipOnCpu);
  m.impl("positives", PositivesOnCpu);
  // Programs write fakes for these, which fail.
  for (const char* name : {"asks", "reads", "raises", "ends"}) {
    m.impl(name, PositivesOnCpu);
  }
  m.impl("halves", HalvesOnCpu);
  m.impl("die", DieOnCpu);
}

TORCH_LIBRARY_IMPL(example, Meta, m) {
  m.impl("bend", BendOfMeta);
  m.impl("bend_backward", BendBackwardOfMeta);
  m.impl("halves", HalvesOfMeta);
  m.impl("die", DieOfMeta);
}

TORCH_LIBRARY_IMPL(example, Autograd, m) { m.impl("bend", BendWithGradient); }

TORCH_LIBRARY_IMPL(example, AutocastCPU, m) { m.impl("bend", BendInFloat32); }
