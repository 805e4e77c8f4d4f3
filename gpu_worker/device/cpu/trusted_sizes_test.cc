// Tests operators whose kernels on the CPU trust the sizes and strides of their
// operands. With operands as programs have them, the operators return what
// PyTorch does. Other operands are refused with a clear text, because the
// kernels would read and write other tenants' memory.
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/core/List.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/_pack_padded_sequence.h"
#include "ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h"
#include "ATen/ops/_weight_norm_interface.h"
#include "ATen/ops/adaptive_max_pool2d.h"
#include "ATen/ops/adaptive_max_pool3d.h"
#include "ATen/ops/avg_pool2d.h"
#include "ATen/ops/avg_pool3d.h"
#include "ATen/ops/fractional_max_pool2d.h"
#include "ATen/ops/fractional_max_pool3d.h"
#include "ATen/ops/linalg_lu_factor.h"
#include "ATen/ops/max_pool2d_with_indices.h"
#include "ATen/ops/max_pool3d_with_indices.h"
#include "ATen/ops/native_group_norm.h"
#include "ATen/ops/native_layer_norm.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/rand.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/tensor.h"
#include "ATen/ops/zeros.h"
#include "common/base/error.h"
#include "gpu_worker/device/cpu/program_tester.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using Ints = std::vector<int64_t>;
using Tensors = c10::List<at::Tensor>;
using c10::IValue;
using torch::jit::Stack;

at::Tensor Longs(const Ints& values) { return at::tensor(values, at::kLong); }

c10::List<bool> All() { return c10::List<bool>({true, true, true}); }

class TrustedSizesTest : public testing::Test {
 protected:
  void ExpectGood(const std::string& op, const Stack& arguments,
                  const std::string& overload = "") {
    tester_.ExpectGood(op, arguments, overload);
  }

  // Expects that the call with `value` at `place` is refused, with `text` in
  // the error.
  void ExpectBad(const std::string& op, Stack arguments, size_t place,
                 IValue value, const std::string& text,
                 const std::string& overload = "") {
    arguments[place] = std::move(value);
    const std::vector<at::Tensor> results(
        FindOperator("aten::" + op, overload).schema().returns().size(),
        at::zeros({1}));
    const EncodedCall call =
        tester_.Encode("aten::" + op, overload, arguments, results);
    const absl::Status status = tester_.library()->Compile(call.graph).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
        << op << ": " << status;
    EXPECT_EQ(ErrorReason(status), "MALFORMED_GRAPH") << op;
    EXPECT_NE(status.message().find(text), absl::string_view::npos) << status;
  }

  // Expects refusals if the tensor at `place` is a slice longer along its first
  // dimension, has only one slice, no slices, no first dimension, or is a
  // scalar.
  void ExpectFixed(const std::string& op, const Stack& arguments, size_t place,
                   const std::string& overload = "") {
    const at::Tensor good = arguments[place].toTensor();
    const std::string name = FindOperator("aten::" + op, overload)
                                 .schema()
                                 .arguments()[place]
                                 .name();
    ASSERT_GT(good.size(0), 1) << op << " " << name;
    Ints longer = good.sizes().vec();
    ++longer[0];
    for (const at::Tensor& bad :
         {at::zeros(longer, good.options()), good.slice(0, 0, 1),
          good.slice(0, 0, 0), good[0]}) {
      ExpectBad(op, arguments, place, bad, "argument " + name + " ", overload);
    }
    // A scalar has no view in the graph.
    const at::Tensor scalar = at::zeros({}, good.options());
    scalar.unsafeGetTensorImpl()->set_wrapped_number(true);
    ExpectBad(op, arguments, place, scalar, "argument " + name + " ", overload);
  }

  // Expects a refusal of an expanded tensor at `place`.
  void ExpectDense(const std::string& op, const Stack& arguments,
                   size_t place) {
    const at::Tensor good = arguments[place].toTensor();
    ExpectBad(op, arguments, place,
              at::zeros({}, good.options()).expand(good.sizes()),
              "must not repeat elements");
  }

  // Expects that the call succeeds, and a refusal if a tensor at one of `fixed`
  // has other sizes, or one at `dense` is expanded.
  void ExpectTrusts(const std::string& op, const Stack& arguments,
                    const std::vector<size_t>& fixed,
                    const std::vector<size_t>& dense = {}) {
    ExpectGood(op, arguments);
    for (const size_t place : fixed) ExpectFixed(op, arguments, place);
    for (const size_t place : dense) ExpectDense(op, arguments, place);
  }

  ProgramTester tester_;
};

TEST_F(TrustedSizesTest, GradientsOfAveragePools) {
  for (const bool ceil : {false, true}) {
    for (const bool padded : {false, true}) {
      for (const at::Tensor& image :
           {at::randn({2, 3, 7, 8}), at::randn({3, 7, 8}),
            at::randn({2, 7, 8, 3}).permute({0, 3, 1, 2})}) {
        const at::Tensor out =
            at::avg_pool2d(image, {3, 2}, {2, 2}, {1, 1}, ceil, padded);
        const Stack good = {at::randn(out.sizes()),
                            image,
                            Ints{3, 2},
                            Ints{2, 2},
                            Ints{1, 1},
                            ceil,
                            padded,
                            IValue()};
        ExpectTrusts("avg_pool2d_backward", good, {0});
      }
      for (const at::Tensor& space :
           {at::randn({2, 3, 5, 6, 7}), at::randn({3, 5, 6, 7})}) {
        const at::Tensor out =
            at::avg_pool3d(space, {2, 2, 2}, {}, {1, 1, 1}, ceil, padded);
        const Stack good = {
            at::randn(out.sizes()), space, Ints{2, 2, 2}, Ints{},
            Ints{1, 1, 1},          ceil,  padded,        IValue()};
        ExpectTrusts("avg_pool3d_backward", good, {0});
      }
    }
  }
}

TEST_F(TrustedSizesTest, GradientsOfMaxima) {
  for (const bool ceil : {false, true}) {
    for (const at::Tensor& image :
         {at::randn({2, 3, 7, 8}), at::randn({3, 7, 8}),
          at::randn({2, 7, 8, 3}).permute({0, 3, 1, 2})}) {
      const auto [out, places] = at::max_pool2d_with_indices(
          image, {2, 2}, {2, 1}, {1, 1}, {2, 1}, ceil);
      const Stack good = {
          at::randn_like(out), image,      Ints{2, 2}, Ints{2, 1},
          Ints{1, 1},          Ints{2, 1}, ceil,       places};
      ExpectTrusts("max_pool2d_with_indices_backward", good, {0, 7});
    }
    for (const at::Tensor& space :
         {at::randn({2, 3, 5, 6, 7}), at::randn({3, 5, 6, 7})}) {
      const auto [out, places] = at::max_pool3d_with_indices(
          space, {2, 2, 2}, {}, {1, 1, 1}, {1, 1, 1}, ceil);
      const Stack good = {
          at::randn_like(out), space,         Ints{2, 2, 2}, Ints{},
          Ints{1, 1, 1},       Ints{1, 1, 1}, ceil,          places};
      ExpectTrusts("max_pool3d_with_indices_backward", good, {0, 7});
    }
  }
}

TEST_F(TrustedSizesTest, GradientsOfMaximaOfAGivenNumber) {
  for (const at::Tensor& image :
       {at::randn({2, 3, 7, 8}), at::randn({3, 7, 8})}) {
    const auto [out, places] = at::adaptive_max_pool2d(image, {3, 4});
    const Stack good = {at::randn_like(out), image, places};
    ExpectTrusts("adaptive_max_pool2d_backward", good, {0, 2}, {2});
    const auto [some, of] = at::fractional_max_pool2d(
        image, {2, 2}, {3, 3}, at::rand({image.dim() == 4 ? 2 : 1, 3, 2}));
    const Stack part = {at::randn_like(some), image, Ints{2, 2}, Ints{3, 3},
                        of};
    ExpectTrusts("fractional_max_pool2d_backward", part, {0, 4}, {4});
  }
  for (const at::Tensor& space :
       {at::randn({2, 3, 5, 6, 7}), at::randn({3, 5, 6, 7})}) {
    const auto [out, places] = at::adaptive_max_pool3d(space, {2, 3, 4});
    const Stack good = {at::randn_like(out), space, places};
    ExpectTrusts("adaptive_max_pool3d_backward", good, {0, 2}, {2});
    const auto [some, of] =
        at::fractional_max_pool3d(space, {2, 2, 2}, {3, 3, 3},
                                  at::rand({space.dim() == 5 ? 2 : 1, 3, 3}));
    const Stack part = {at::randn_like(some), space, Ints{2, 2, 2},
                        Ints{3, 3, 3}, of};
    ExpectTrusts("fractional_max_pool3d_backward", part, {0, 4}, {4});
  }
}

TEST_F(TrustedSizesTest, GradientsOfNothing) {
  for (const std::string op :
       {"_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward"}) {
    Ints sizes = {2, 3, 4, 4};
    if (op.find("3d") != std::string::npos) sizes.push_back(4);
    const Stack good = {at::randn(sizes), at::randn(sizes)};
    ExpectGood(op, good);
    sizes[2] = 0;
    ExpectBad(op, good, 1, at::randn(sizes), "argument self");
  }
}

TEST_F(TrustedSizesTest, GradientsOfPadding) {
  for (const std::string kind : {"reflection_pad", "replication_pad"}) {
    for (int64_t rank = 1; rank <= 3; ++rank) {
      for (const bool batch : {false, true}) {
        Ints sizes = {4, 5, 6};
        sizes.resize(rank);
        Ints padded = {7, 8, 9};
        padded.resize(rank);
        for (Ints* each : {&sizes, &padded}) {
          each->insert(each->begin(), 3);
          if (batch) each->insert(each->begin(), 2);
        }
        Ints margins;
        for (int64_t i = 0; i < rank; ++i)
          margins.insert(margins.end(), {1, 2});
        const std::string op = kind + std::to_string(rank) + "d_backward";
        const Stack good = {at::randn(padded), at::randn(sizes), margins};
        ExpectTrusts(op, good, {0});
        ExpectBad(op, good, 1, at::randn(sizes).slice(0, 0, 1),
                  "to fit argument self float32[1,");
      }
    }
  }
}

TEST_F(TrustedSizesTest, GradientsOfSamples) {
  const Stack plane = {at::randn({2, 3, 4, 5}),
                       at::randn({2, 3, 6, 7}),
                       at::rand({2, 4, 5, 2}),
                       0,
                       0,
                       false,
                       c10::List<bool>({true, true})};
  ExpectTrusts("grid_sampler_2d_backward", plane, {0});
  ExpectBad("grid_sampler_2d_backward", plane, 0, at::randn({2, 1, 4, 5}),
            "argument grad_output is float32[2,1,4,5], must be [2,3,4,5] to "
            "fit argument input float32[2,3,6,7] and argument grid "
            "float32[2,4,5,2]");
  ExpectBad("grid_sampler_2d_backward", plane, 2, at::rand({2, 4}),
            "argument grid");
  const Stack space = {at::randn({2, 3, 2, 4, 5}),
                       at::randn({2, 3, 3, 6, 7}),
                       at::rand({2, 2, 4, 5, 3}),
                       0,
                       0,
                       true,
                       c10::List<bool>({true, true})};
  ExpectTrusts("grid_sampler_3d_backward", space, {0});
}

TEST_F(TrustedSizesTest, GradientsOfNormalisations) {
  const at::Tensor input = at::randn({4, 3, 6});
  for (const Ints& shape : {Ints{6}, Ints{3, 6}}) {
    const at::Tensor weight = at::randn(shape), bias = at::randn(shape);
    const auto [out, mean, spread] =
        at::native_layer_norm(input, shape, weight, bias, 1e-5);
    const Stack good = {
        at::randn_like(out), input, shape, mean, spread, weight, bias, All()};
    const std::string op = "native_layer_norm_backward";
    ExpectGood(op, good);
    for (const size_t place : {0, 3, 4}) ExpectFixed(op, good, place);
    for (const size_t place : {3, 4}) ExpectDense(op, good, place);
  }
  const at::Tensor image = at::randn({4, 6, 5});
  const at::Tensor weight = at::randn({6}), bias = at::randn({6});
  const auto [out, mean, spread] =
      at::native_group_norm(image, weight, bias, 4, 6, 5, 2, 1e-5);
  const Stack forward = {image, weight, bias, 4, 6, 5, 2, 1e-5};
  ExpectGood("native_group_norm", forward);
  for (const size_t place : {1, 2}) {
    ExpectDense("native_group_norm", forward, place);
  }
  const Stack good = {
      at::randn_like(out), image, mean, spread, weight, 4, 6, 5, 2, All()};
  ExpectGood("native_group_norm_backward", good);
  for (size_t place = 0; place < 5; ++place) {
    ExpectDense("native_group_norm_backward", good, place);
  }
  const at::Tensor last =
      at::randn({4, 6, 5, 1}).contiguous(at::MemoryFormat::ChannelsLast);
  const Stack images = {
      at::randn_like(last), last, mean, spread, weight, 4, 6, 5, 2, All()};
  ExpectGood("native_group_norm_backward", images);
  ExpectBad("native_group_norm_backward", images, 9,
            c10::List<bool>({false, true, true}),
            "argument input is float32[4,6,5,1], must not be channels-last");
}

TEST_F(TrustedSizesTest, StatisticsOfChannels) {
  const Stack good = {at::randn({2, 6, 5}), at::zeros({6}), at::ones({6}), 0.1};
  ExpectTrusts("batch_norm_update_stats", good, {1, 2});
}

TEST_F(TrustedSizesTest, NormsOfWeights) {
  for (const int64_t dim : {0, 1}) {
    const at::Tensor v = at::randn({4, 6});
    const at::Tensor g = dim == 0 ? at::rand({4, 1}) : at::rand({1, 6});
    const Stack forward = {v, g, dim};
    ExpectTrusts("_weight_norm_interface", forward, {}, {0, 1});
    ExpectBad("_weight_norm_interface", forward, 1, at::rand({3}),
              "argument g is float32[3], must have");
    ExpectBad("_weight_norm_interface", forward, 0, at::rand({0, 0}),
              "argument v is float32[0,0], must have elements");
    const auto [w, norms] = at::_weight_norm_interface(v, g, dim);
    const Stack good = {at::randn({4, 6}), v, g, norms, dim};
    const std::string op = "_weight_norm_interface_backward";
    ExpectTrusts(op, good, {0}, {0});
    ExpectBad(op, good, 2, at::rand({3}), "argument saved_g");
    ExpectBad(op, good, 3, at::rand({3}), "argument saved_norms");
  }
}

TEST_F(TrustedSizesTest, HeadsOfAttention) {
  const at::Tensor x = at::randn({2, 3, 4});
  const Stack whole = {x,
                       x.clone(),
                       x.clone(),
                       4,
                       2,
                       at::randn({12, 4}),
                       at::randn({12}),
                       at::randn({4, 4}),
                       at::randn({4}),
                       IValue(),
                       false,
                       true,
                       IValue()};
  ExpectGood("_native_multi_head_attention", whole);
  ExpectBad("_native_multi_head_attention", whole, 4, 0, "argument num_head");
  ExpectBad("_native_multi_head_attention", whole, 4, -2, "argument num_head");

  // (batch, heads, rows, width)
  const at::Tensor heads = at::randn({2, 2, 3, 4});
  const auto half = [&] { return heads.to(at::kHalf); };
  const Stack forward = {heads, heads, heads, 0.0, false, IValue(), IValue()};
  const std::string op = "_scaled_dot_product_flash_attention_for_cpu";
  ExpectGood(op, forward);
  ExpectBad(op, forward, 1, half(), "argument key");
  ExpectBad(op, forward, 2, half(), "argument value");
  const auto [out, sums] =
      at::_scaled_dot_product_flash_attention_for_cpu(heads, heads, heads);
  const Stack backward = {heads, heads, heads, heads,    out,
                          sums,  0.0,   false, IValue(), IValue()};
  ExpectGood(op + "_backward", backward);
  ExpectBad(op + "_backward", backward, 0, half(), "argument grad_out");
  ExpectBad(op + "_backward", backward, 4, half(), "argument out");
  ExpectBad(op + "_backward", backward, 5, sums.to(at::kDouble),
            "argument logsumexp");
}

TEST_F(TrustedSizesTest, GradientsOfWindows) {
  const Stack good = {at::randn({4, 3, 2}), Ints{4, 8}, 1, 2, 3};
  ExpectTrusts("unfold_backward", good, {0});
  ExpectGood("unfold_backward", {at::randn({1}), Ints{}, 0, 1, 1});
  ExpectGood("unfold_backward", {at::randn({3, 8, 2}), Ints{8, 8}, -2, 2, 3});
  ExpectBad("unfold_backward", good, 1, Ints{4, 20}, "argument grad_in");
  ExpectBad("unfold_backward", good, 3, 100, "unfold");
}

TEST_F(TrustedSizesTest, GradientsOfDistances) {
  const Stack self = {at::randn({10}), at::randn({5, 3}), 2.0, at::rand({10})};
  ExpectTrusts("_pdist_backward", self, {0, 3});
  ExpectBad("_pdist_backward", self, 1, at::randn({9, 3}), "argument grad");
  const Stack pair = {at::randn({2, 5, 4}), at::randn({2, 5, 3}),
                      at::randn({2, 4, 3}), 2.0, at::rand({2, 5, 4})};
  ExpectTrusts("_cdist_backward", pair, {0, 4});
  ExpectBad("_cdist_backward", pair, 1, at::randn({2, 6, 3}), "argument grad");
  ExpectBad("_cdist_backward", pair, 2, at::randn({2, 4, 1}), "argument x2");
}

TEST_F(TrustedSizesTest, GradientsOfMargins) {
  const std::string op = "multi_margin_loss_backward";
  const Stack each = {
      at::randn({3}), at::randn({3, 5}), Longs({0, 4, 2}), 1, 1.0, IValue(), 0};
  ExpectGood(op, each);
  ExpectBad(op, each, 0, at::randn({2}),
            "argument grad_output is float32[2], must be [3] to fit argument "
            "target int64[3]");
  Stack mean = each;
  mean[0] = at::randn({});
  mean[6] = 1;
  ExpectGood(op, mean);
  ExpectBad(op, mean, 0, at::randn({0}), "argument grad_output");
}

TEST_F(TrustedSizesTest, FactorsAndRightSides) {
  for (const Ints& shape : {Ints{3, 4, 6}, Ints{3, 6, 4}, Ints{4, 4}}) {
    const auto [lu, pivots] = at::linalg_lu_factor(at::randn(shape));
    const Stack good = {lu, pivots};
    ExpectTrusts("lu_unpack", good, {1});
    ExpectGood("lu_unpack", {lu, pivots.slice(0, 0, 1), true, false});
  }
  const Stack good = {at::randn({4, 3}), at::randn({4, 2}), IValue(),
                      std::string("gelss")};
  ExpectGood("linalg_lstsq", good);
  ExpectBad("linalg_lstsq", good, 1, at::randn({4, 0}),
            "argument b is float32[4,0], must have columns");
  ExpectGood("linalg_lstsq", {at::randn({4, 3}), at::randn({4, 0}), IValue(),
                              std::string("gelsy")});
}

TEST_F(TrustedSizesTest, KernelsOfConvolutions) {
  const Stack space = {at::randn({2, 3, 5, 5, 5}),
                       at::randn({4, 3, 3, 3, 3}),
                       Ints{3, 3, 3},
                       at::randn({4}),
                       Ints{1, 1, 1},
                       Ints{1, 1, 1}};
  for (const std::string op : {"slow_conv3d", "slow_conv3d_forward"}) {
    ExpectGood(op, space);
    ExpectBad(op, space, 1, at::randn({4, 3, 1, 3, 3}),
              "argument weight is float32[4,3,1,3,3], must be [*,*,3,3,3] to "
              "fit kernel_size");
  }
  const Stack plane = {at::randn({2, 3, 6, 6}), at::randn({3, 4, 3, 3}),
                       Ints{3, 3}, at::randn({4})};
  ExpectGood("slow_conv_transpose2d", plane);
  ExpectBad("slow_conv_transpose2d", plane, 1, at::randn({3, 4, 1, 3}),
            "argument weight");
  const Stack deep = {at::randn({2, 3, 5, 5, 5}), at::randn({3, 4, 3, 3, 3}),
                      Ints{3, 3, 3}, at::randn({4})};
  ExpectGood("slow_conv_transpose3d", deep);
  ExpectBad("slow_conv_transpose3d", deep, 1, at::randn({3, 4, 6, 3, 3}),
            "argument weight");
}

TEST_F(TrustedSizesTest, StatesOfOptimizers) {
  const auto list = [](at::IntArrayRef sizes) {
    return Tensors({at::rand({2}), at::rand(sizes)});
  };
  const Tensors steps({at::ones({}), at::ones({})});
  const Ints shape = {3, 4};
  for (const std::string op : {"_fused_adam_", "_fused_adamw_"}) {
    const Stack good = {list(shape), list(shape), list(shape), list(shape),
                        list(shape), steps,       0.1,         0.9,
                        0.99,        0.1,         1e-8,        true,
                        false};
    ExpectGood(op, good);
    for (size_t place = 1; place < 5; ++place) {
      ExpectBad(op, good, place, list({3, 3}),
                "[1] is float32[3,3], must be [3,4] to fit argument self[1] "
                "float32[3,4]");
      ExpectBad(op, good, place,
                Tensors({at::rand({2}), at::rand({1}).expand(shape)}),
                "must not repeat elements");
    }
  }
  const Stack sgd = {list(shape), list(shape), list(shape), 0.1,   0.9,
                     0.1,         0.0,         false,       false, false};
  ExpectGood("_fused_sgd_", sgd);
  ExpectBad("_fused_sgd_", sgd, 1, list({3, 3}), "argument grads[1]");
  ExpectBad("_fused_sgd_", sgd, 2, list({3, 3}),
            "argument momentum_buffer_list[1]");
  const Stack sums = {list(shape), list(shape), list(shape), steps, 0.1,
                      0.1,         0.1,         1e-8,        false};
  ExpectGood("_fused_adagrad_", sums);
  ExpectBad("_fused_adagrad_", sums, 2, list({3, 3}), "argument state_sums[1]");
}

TEST_F(TrustedSizesTest, StatesOfRecurrences) {
  const auto weights = [](int64_t gates, int64_t in) {
    return Tensors({at::randn({gates * 3, in}), at::randn({gates * 3, 3}),
                    at::randn({gates * 3}), at::randn({gates * 3})});
  };
  const auto hidden = [](int64_t layers) {
    return Tensors({at::randn({layers, 3, 3}), at::randn({layers, 3, 3})});
  };
  const auto [data, batches] =
      at::_pack_padded_sequence(at::randn({5, 3, 2}), Longs({5, 4, 2}), false);
  for (const auto& [op, gates] : std::vector<std::pair<std::string, int64_t>>{
           {"gru", 3}, {"rnn_tanh", 1}, {"rnn_relu", 1}}) {
    const Stack good = {
        data,  batches, at::randn({1, 3, 3}), weights(gates, 2), true, 1, 0.0,
        false, false};
    ExpectGood(op, good, "data");
    ExpectBad(op, good, 1, Longs({}), "argument batch_sizes is int64[0]",
              "data");
  }
  const Stack packed = {data, batches, hidden(1), weights(4, 2), true,
                        1,    0.0,     false,     false};
  ExpectGood("lstm", packed, "data");
  ExpectBad("lstm", packed, 1, Longs({}), "argument batch_sizes", "data");
  ExpectBad("lstm", packed, 2,
            Tensors({at::randn({4, 3, 3}), at::randn({1, 3, 3})}),
            "argument hx[1] is float32[1,3,3], must be [4,3,3]", "data");

  const Stack good = {at::randn({5, 3, 2}),
                      hidden(1),
                      weights(4, 2),
                      true,
                      1,
                      0.0,
                      false,
                      false,
                      false};
  ExpectGood("lstm", good, "input");
  ExpectBad("lstm", good, 0, at::randn({5, 4, 2}), "argument hx[0]", "input");
  ExpectBad("lstm", good, 1, hidden(2), "argument hx[0]", "input");
  ExpectBad("lstm", good, 2, weights(4, 1),
            "argument params[0] is float32[12,1], must be [12,2]", "input");
  ExpectBad("lstm", good, 2, weights(3, 2), "argument params[0]", "input");
  ExpectBad("lstm", good, 2, Tensors({at::randn({12, 2})}), "argument params",
            "input");
  // The first call has batches first and two layers in both directions; the
  // second has a projection.
  Tensors many = weights(4, 2);
  for (const int64_t in : {2, 6, 6}) {
    for (const at::Tensor& each : weights(4, in)) many.push_back(each);
  }
  ExpectGood(
      "lstm",
      {at::randn({3, 5, 2}), hidden(4), many, true, 2, 0.0, false, true, true},
      "input");
  ExpectGood(
      "lstm",
      {at::randn({5, 3, 2}),
       Tensors({at::randn({1, 3, 2}), at::randn({1, 3, 3})}),
       Tensors({at::randn({12, 2}), at::randn({12, 2}), at::randn({2, 3})}),
       false, 1, 0.0, false, false, false},
      "input");
}

TEST_F(TrustedSizesTest, NoiseAndMedians) {
  const Stack noise = {at::randn({20}), at::rand({20}), 0.1, 0.3, true};
  ExpectTrusts("rrelu_with_noise", noise, {}, {1});
  const at::Tensor row = at::randn({3, 1});
  for (const std::string op : {"median", "nanmedian"}) {
    ExpectGood(op, {row.slice(0, 0, 0).expand({0, 4}), 1}, "dim");
    const Stack good = {row.expand({3, 4}), 0};
    ExpectGood(op, good, "dim");
    ExpectBad(op, good, 1, -1,
              "argument self is float32[3,4], must not be expanded along "
              "dimension 1",
              "dim");
  }
}

TEST_F(TrustedSizesTest, TrianglesOfMatrices) {
  const at::Tensor matrices = at::randn({3, 2, 4, 4});
  for (const std::string op : {"tril", "triu"}) {
    for (const at::Tensor& out :
         {at::zeros({3, 2, 4, 4}), at::zeros({3, 2, 4, 8}).slice(3, 0, 8, 2),
          at::zeros({3, 2, 4, 4}).transpose(2, 3)}) {
      ExpectGood(op, {matrices, 1, out}, "out");
    }
    ExpectBad(op, {matrices, 1, IValue()}, 2,
              at::zeros({2, 3, 4, 4}).transpose(0, 1),
              "have its matrices one behind the other", "out");
  }
}

TEST_F(TrustedSizesTest, ExpandedOutputs) {
  const at::Tensor one = at::zeros({1});
  ExpectBad("mv", {at::randn({5, 3}), at::randn({3}), IValue()}, 2,
            one.expand({5}), "argument out", "out");
  ExpectBad("narrow_copy", {at::randn({5}), 0, 0, 4, IValue()}, 4,
            one.expand({4}), "must not repeat elements", "out");
  ExpectBad("avg_pool3d",
            {at::randn({1, 2, 4, 4, 4}), Ints{2, 2, 2}, Ints{}, Ints{0, 0, 0},
             false, true, IValue(), IValue()},
            7, one.expand({1, 2, 2, 2, 2}), "must not repeat elements", "out");
}

}  // namespace
}  // namespace djinn::worker
