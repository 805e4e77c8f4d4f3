// Tests that no call crashes the operator library, however it is mutated.
#include <complex>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/List.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/tensor.h"
#include "ATen/ops/zeros.h"
#include "common/base/error.h"
#include "common/srg/validate.h"
#include "gpu_worker/device/cpu/program_tester.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using Ints = std::vector<int64_t>;
using c10::IValue;

// Replaces parts of valid calls with values of other types and sizes. A call
// that passes Validate() and Compile() runs; nothing may crash.
class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  void Mutate(EncodedCall* call) {
    srg::Node& node = call->node();
    const int changes = 1 + Below(2);
    for (int i = 0; i < changes; ++i) {
      const int what = Below(12);
      if (what == 0) {
        node.arguments.resize(
            Below(static_cast<int>(node.arguments.size()) + 3));
      } else if (what == 1) {
        node.results.resize(Below(4));
      } else if (what == 2) {
        node.writes = {static_cast<uint32_t>(Below(3))};
      } else if (what == 3) {
        node.overwrites = {static_cast<uint32_t>(Below(3))};
      } else if (what == 4) {
        node.implicit_generator_slot = static_cast<uint32_t>(Below(3));
      } else if (!node.arguments.empty()) {
        srg::Argument& argument =
            node.arguments[Below(static_cast<int>(node.arguments.size()))];
        if (auto* view = std::get_if<srg::TensorView>(&argument);
            view != nullptr && Below(3) > 0) {
          MutateView(view);
        } else if (auto* list = std::get_if<Ints>(&argument);
                   list != nullptr && Below(3) > 0) {
          MutateInts(list);
        } else {
          argument = AnyArgument();
        }
      }
    }
  }

  int64_t Integer() {
    constexpr int64_t kValues[] = {
        0, 1, -1, 2, 3, 7, 64, -5, 12, 100, 1LL << 33, INT64_MAX, INT64_MIN};
    return kValues[Below(std::size(kValues))];
  }

 private:
  int Below(size_t bound) {
    return static_cast<int>(random_() % std::max<size_t>(bound, 1));
  }

  void MutateInts(std::vector<int64_t>* list) {
    switch (Below(3)) {
      case 0:
        list->push_back(Integer());
        break;
      case 1:
        if (!list->empty()) list->pop_back();
        break;
      default:
        if (!list->empty()) (*list)[Below(list->size())] = Integer();
    }
  }

  void MutateView(srg::TensorView* view) {
    switch (Below(6)) {
      case 0:
        view->data_type = static_cast<srg::DataType>(Below(18));
        break;
      case 1:
        view->conjugate = !view->conjugate;
        break;
      case 2:
        view->negative = !view->negative;
        break;
      case 3:
        view->sizes.push_back(Integer());
        view->strides.push_back(Below(3));
        break;
      case 4:
        if (!view->sizes.empty())
          view->sizes[Below(view->sizes.size())] = Below(9);
        break;
      default:
        if (!view->strides.empty()) {
          view->strides[Below(view->strides.size())] = Below(3);
        }
    }
  }

  srg::TensorView AnyView() {
    srg::TensorView view;
    view.slot = static_cast<uint32_t>(Below(2));
    view.data_type = srg::DataType::kFloat32;
    view.sizes = {Below(4)};
    view.strides = {1};
    return view;
  }

  srg::Argument AnyArgument() {
    switch (Below(15)) {
      case 0:
        return std::monostate();
      case 1:
        return AnyView();
      case 2:
        return std::vector<srg::TensorListEntry>{AnyView(), std::monostate()};
      case 3:
        return Integer();
      case 4:
        return Ints{Integer(), Integer()};
      case 5:
        return Below(2) == 0;
      case 6:
        return std::vector<bool>{true, false, true};
      case 7:
        return srg::FloatHole{0};
      case 8:
        return std::vector<double>{0.5};
      case 9:
        return std::complex<double>(1, 2);
      case 10:
        return std::string("mean");
      case 11:
        return srg::ScalarTensor{0, srg::DataType::kFloat32, Below(2) == 0};
      case 12:
        return srg::GeneratorSlot{0};
      case 13:
        return srg::WorkerDevice{};
      default:
        return std::vector<srg::Scalar>{int64_t{1}, 0.5};
    }
  }

  std::mt19937 random_;
};

// Gives the mutated graph the values for its holes, as the executor would.
bool Supply(ProgramTester* tester, EncodedCall* call) {
  uint32_t floats = 0;
  uint32_t scalars = 0;
  for (srg::Argument& argument : call->node().arguments) {
    if (auto* hole = std::get_if<srg::FloatHole>(&argument)) {
      hole->index = floats++;
    } else if (auto* scalar = std::get_if<srg::ScalarTensor>(&argument)) {
      scalar->hole = scalars++;
    }
  }
  call->graph.float_hole_count = floats;
  call->graph.scalar_tensor_hole_count = scalars;
  call->floats.resize(floats, 0.5);
  for (srg::Result& result : call->node().results)
    result = srg::UndefinedResult{};
  // The results' slots are unused now.
  while (!call->graph.slots.empty() &&
         call->graph.slots.back().kind == srg::Slot::Kind::kResult) {
    call->graph.slots.pop_back();
    call->slots.pop_back();
  }
  const absl::StatusOr<srg::GraphFacts> facts =
      srg::Validate(call->graph, srg::GraphCaps());
  if (!facts.ok()) return false;
  call->scalar_tensors.clear();
  for (const srg::DataType type : facts->scalar_tensor_types) {
    call->scalar_tensors.emplace_back(srg::ElementSize(type), '\1');
  }
  for (size_t i = 0; i < call->slots.size(); ++i) {
    if (facts->slots[i].required_bytes > 1 << 20) return false;
    if (call->slots[i]->size_bytes() < facts->slots[i].required_bytes) {
      call->slots[i] =
          tester->device()
              ->Clone(*call->slots[i], facts->slots[i].required_bytes)
              .value();
    }
  }
  return true;
}

TEST(MutatedCallsTest, NeverCrash) {
  ProgramTester tester;
  const at::Tensor a = at::randn({3, 4});
  const at::Tensor image = at::randn({2, 3, 8, 8});
  const at::Tensor w = at::randn({4, 3, 3, 3});
  const auto encode = [&](const char* name, const char* overload,
                          torch::jit::Stack arguments,
                          std::vector<at::Tensor> results) {
    return tester.Encode(name, overload, std::move(arguments), results);
  };
  const std::vector<EncodedCall> seeds = {
      encode("aten::add", "Tensor", {a, a, 0.5}, {a}),
      encode("aten::add", "out", {a, a, 1, at::zeros({3, 4})}, {}),
      encode("aten::mm", "", {a, a.t()}, {a}),
      encode("aten::linear", "", {a, at::randn({5, 4}), at::randn({5})}, {a}),
      encode("aten::layer_norm", "", {a, Ints{4}, at::ones({4}), at::ones({4})},
             {a}),
      encode("aten::softmax", "int", {a, 1, 6}, {a}),
      encode("aten::sum", "dim_IntList", {a, Ints{0, 1}, true, 6}, {a}),
      encode("aten::cat", "", {c10::List<at::Tensor>({a, a}), 0}, {a}),
      encode("aten::convolution", "",
             {image, w, at::ones({4}), Ints{1, 1}, Ints{1, 1}, Ints{1, 1},
              false, Ints{0, 0}, 1},
             {image}),
      encode("aten::convolution_backward", "",
             {at::randn({2, 4, 8, 8}), image, w, Ints{4}, Ints{1, 1},
              Ints{1, 1}, Ints{1, 1}, false, Ints{0, 0}, 1,
              c10::List<bool>({true, true, true})},
             {image, w, a}),
      encode("aten::max_pool2d", "", {image, Ints{2, 2}}, {image}),
      encode("aten::reflection_pad2d", "", {image, Ints{1, 1, 1, 1}}, {image}),
      encode("aten::as_strided", "", {a, Ints{2, 2}, Ints{4, 1}, 1}, {a}),
      encode("aten::embedding", "", {a, at::tensor(Ints{0, 2, 1})}, {a}),
      encode("aten::index_select", "", {a, 0, at::tensor(Ints{0, 2})}, {a}),
      encode("aten::gather", "", {a, 1, at::tensor(Ints{0, 2}).view({1, 2})},
             {a}),
      encode("aten::dropout", "", {a, 0.5, true}, {a}),
      encode("aten::normal_", "", {at::zeros({5})}, {}),
      encode("aten::max", "dim", {a, 1}, {a, a}),
      encode("aten::split", "Tensor", {a, 2}, {a, a}),
      encode("aten::_to_copy", "", {a, 7}, {a}),
      encode("aten::masked_fill_", "Scalar", {at::zeros({3, 4}), a.gt(0), 1.5},
             {}),
      encode("aten::upsample_nearest2d", "", {image, Ints{16, 16}}, {image}),
      encode("aten::conj_physical", "", {at::randn({3}, at::kComplexFloat)},
             {a}),
      encode("aten::_embedding_bag", "",
             {a, at::tensor(Ints{0, 2, 1}), at::tensor(Ints{0, 2})},
             {a, a, a, a}),
      encode("aten::_pad_packed_sequence", "",
             {at::randn({5, 2}), at::tensor(Ints{2, 2, 1}), false, 0.0, 3},
             {a, a}),
      encode("aten::segment_reduce", "",
             {a, std::string("sum"), IValue(), IValue(),
              at::tensor(Ints{0, 1, 3})},
             {a}),
      encode("aten::native_layer_norm_backward", "",
             {a, a, Ints{4}, at::ones({3, 1}), at::ones({3, 1}), at::ones({4}),
              at::ones({4}), c10::List<bool>({true, true, true})},
             {a, a, a}),
      encode("aten::native_group_norm_backward", "",
             {at::randn({2, 6, 5}), at::randn({2, 6, 5}), at::ones({2, 3}),
              at::ones({2, 3}), at::ones({6}), 2, 6, 5, 3,
              c10::List<bool>({true, true, true})},
             {a, a, a}),
      encode("aten::avg_pool2d_backward", "",
             {at::randn({2, 3, 4, 4}), image, Ints{2, 2}, Ints{2, 2},
              Ints{0, 0}, false, true, IValue()},
             {image}),
      encode("aten::reflection_pad2d_backward", "",
             {at::randn({2, 3, 10, 11}), image, Ints{1, 1, 1, 2}}, {image}),
      encode("aten::replication_pad1d_backward", "",
             {at::randn({2, 3, 10}), at::randn({2, 3, 8}), Ints{1, 1}},
             {image}),
      encode("aten::grid_sampler_2d_backward", "",
             {at::randn({2, 3, 4, 5}), image, at::zeros({2, 4, 5, 2}), 0, 0,
              false, c10::List<bool>({true, true})},
             {image, image}),
      encode("aten::lu_unpack", "",
             {at::randn({3, 4}), at::ones({3}, at::kInt)}, {a, a, a}),
      encode("aten::unfold_backward", "",
             {at::randn({3, 2, 2}), Ints{3, 4}, 1, 2, 2}, {a}),
      encode("aten::_pdist_backward", "",
             {at::ones({3}), a, 2.0, at::ones({3})}, {a}),
      encode("aten::_cdist_backward", "",
             {at::ones({3, 2}), a, at::randn({2, 4}), 2.0, at::ones({3, 2})},
             {a}),
      encode("aten::linalg_lstsq", "",
             {a, at::ones({3, 2}), IValue(), std::string("gelss")},
             {a, a, a, a}),
      encode("aten::multi_margin_loss_backward", "",
             {at::ones({3}), a, at::tensor(Ints{0, 3, 1}), 1, 1, IValue(), 0},
             {a}),
      encode("aten::_weight_norm_interface", "", {a, at::ones({3, 1}), 0},
             {a, a}),
      encode("aten::_weight_norm_interface_backward", "",
             {a, a, at::ones({3, 1}), at::ones({3, 1}), 0}, {a, a}),
      encode("aten::_fused_sgd_", "",
             {c10::List<at::Tensor>({at::zeros({3, 4})}),
              c10::List<at::Tensor>({at::zeros({3, 4})}),
              c10::List<at::Tensor>({at::zeros({3, 4})}), 0.1, 0.9, 0.1, 0.0,
              false, false, false},
             {}),
      encode("aten::lstm", "data",
             {at::randn({5, 2}), at::tensor(Ints{2, 2, 1}),
              c10::List<at::Tensor>({at::ones({1, 2, 3}), at::ones({1, 2, 3})}),
              c10::List<at::Tensor>({at::randn({12, 2}), at::randn({12, 3})}),
              false, 1, 0.0, false, false},
             {a, a, a}),
      encode("aten::lstm", "input",
             {at::randn({5, 2, 2}),
              c10::List<at::Tensor>({at::ones({1, 2, 3}), at::ones({1, 2, 3})}),
              c10::List<at::Tensor>({at::randn({12, 2}), at::randn({12, 3})}),
              false, 1, 0.0, false, false, false},
             {a, a, a}),
      encode("aten::median", "dim", {a, 1}, {a, a}),
  };
  Mutator mutator(20240607);
  int ran = 0;
  int succeeded = 0;
  for (int round = 0; round < 40000; ++round) {
    EncodedCall call = seeds[round % seeds.size()];
    for (std::shared_ptr<Buffer>& buffer : call.slots) {
      if (buffer != nullptr) {
        buffer = tester.device()->Clone(*buffer, buffer->size_bytes()).value();
      }
    }
    mutator.Mutate(&call);
    if (!Supply(&tester, &call)) continue;
    const absl::StatusOr<std::unique_ptr<CompiledProgram>> program =
        tester.library()->Compile(call.graph);
    if (!program.ok()) {
      EXPECT_FALSE(ErrorReason(program.status()).empty()) << program.status();
      continue;
    }
    ++ran;
    std::vector<NodeResult> results;
    const absl::Status status = (*program)->Execute(0, call.input(), &results);
    if (status.ok()) {
      ++succeeded;
      EXPECT_EQ(results.size(), call.node().results.size());
    } else {
      EXPECT_FALSE(ErrorReason(status).empty()) << status;
      EXPECT_TRUE(results.empty());
    }
  }
  // Enough mutations must get past Compile().
  EXPECT_GT(ran, 300);
  EXPECT_GT(succeeded, 100);
}

}  // namespace
}  // namespace djinn::worker
