// Tests the fusion of attention that a program spells out: the result equals
// that of the calls, and no value that is left unwritten can be read.
#include "gpu_worker/device/torch/attention_pass.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ScalarOps.h"
#include "ATen/TensorOperators.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/allclose.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/randn_like.h"
#include "ATen/ops/softmax.h"
#include "ATen/ops/zeros.h"
#include "c10/core/InferenceMode.h"
#include "gmock/gmock.h"
#include "gpu_worker/device/cpu/cpu_device.h"
#include "gpu_worker/device/cpu/program_tester.h"
#include "gpu_worker/device/torch/torch_buffer.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

constexpr int64_t kHeads = 4, kTokens = 64, kWidth = 16;
constexpr double kNothing = -std::numeric_limits<double>::infinity();
constexpr int kRuns = 2;

// A program of several calls, captured while each is executed eagerly.
class Calls {
 public:
  explicit Calls(ProgramTester* tester) : tester_(tester) {}

  at::Tensor Call(const std::string& name, const std::string& overload,
                  torch::jit::Stack arguments) {
    const c10::InferenceMode inference;
    const c10::OperatorHandle op = FindOperator(name, overload);
    arguments = WithDefaults(op, std::move(arguments));
    torch::jit::Stack stack = arguments;
    op.callBoxed(&stack);
    const at::Tensor result = stack[0].toTensor();
    Merge(tester_->Encode(name, overload, arguments, {result}), arguments,
          result);
    return result;
  }

  void Compile() { CompileFor(tester_->library()); }
  void CompileFor(OperatorLibrary* library) {
    program_ = library->Compile(graph_).value();
    slots_ = given_;
    slots_.resize(graph_.slots.size());
  }

  // Executes all calls and returns the last result. Values in `kept` outlive
  // the run, too.
  absl::StatusOr<at::Tensor> Run(bool fast,
                                 const std::vector<at::Tensor>& kept = {}) {
    const c10::InferenceMode inference;
    std::vector<std::shared_ptr<Buffer>> slots = slots_;
    std::vector<std::pair<uint32_t, uint32_t>> ends;
    for (const auto& [storage, slot] : slot_of_) {
      const bool stays =
          std::any_of(kept.begin(), kept.end(),
                      [&, storage = storage](const at::Tensor& t) {
                        return t.storage().unsafeGetStorageImpl() == storage;
                      });
      const uint32_t last = last_use_[slot];
      if (!stays && graph_.slots[slot].kind == srg::Slot::Kind::kResult &&
          last > 0) {
        ends.emplace_back(last, slot);
      }
    }
    std::sort(ends.begin(), ends.end());
    unmade_ = 0;
    at::Tensor tensor;
    for (uint32_t node = 0; node < graph_.nodes.size(); ++node) {
      NodeInput input{slots, floats_, scalar_tensors_};
      input.fast = fast;
      input.run_ends = ends;
      std::vector<NodeResult> results;
      const absl::Status status = program_->Execute(node, input, &results);
      if (!status.ok()) return status;
      const auto& view =
          std::get<srg::TensorView>(graph_.nodes[node].results[0]);
      const auto& buffer = static_cast<const TorchBuffer&>(*results[0].buffer);
      if (buffer.unmade() != nullptr) {
        ++unmade_;
        EXPECT_EQ(buffer.size_bytes(),
                  static_cast<uint64_t>(srg::ExtentBytes(view).value()));
        srg::TensorView same = view;
        same.slot = results[0].view.slot;
        EXPECT_EQ(results[0].view, same);
      } else {
        tensor = ProgramTester::TensorOf(results[0]).clone();
        if (node + 1 < graph_.nodes.size()) seen_[view.slot] = tensor;
      }
      slots[view.slot] = std::move(results[0].buffer);
      // An executor frees slots after the last node that names them.
      for (const auto& [last, slot] : ends) {
        if (last == node) slots[slot].reset();
      }
    }
    return tensor;
  }

  // Returns how many results of the last run were left unwritten.
  int unmade() const { return unmade_; }
  // Returns the last run's result for a value that outlived it.
  at::Tensor Seen(const at::Tensor& value) {
    return seen_[slot_of_.at(value.storage().unsafeGetStorageImpl())];
  }
  // Replaces one of the program's inputs.
  void Replace(const at::Tensor& given, const at::Tensor& with) {
    Give(given, std::make_shared<TorchBuffer>(with.clone().storage()));
  }
  void Give(const at::Tensor& given, std::shared_ptr<Buffer> with) {
    slots_[slot_of_.at(given.storage().unsafeGetStorageImpl())] =
        std::move(with);
  }
  std::vector<std::string>* scalar_tensors() { return &scalar_tensors_; }

 private:
  void Merge(EncodedCall call, const torch::jit::Stack& arguments,
             const at::Tensor& result) {
    // Slots are numbered in the order of their first use.
    std::vector<c10::StorageImpl*> storages;
    const auto meet = [&](const at::Tensor& tensor) {
      if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) return;
      c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
      if (std::find(storages.begin(), storages.end(), storage) ==
          storages.end()) {
        storages.push_back(storage);
      }
    };
    for (const c10::IValue& argument : arguments) {
      if (argument.isTensor()) meet(argument.toTensor());
    }
    meet(result);
    kept_.push_back(result);
    ASSERT_EQ(storages.size(), call.graph.slots.size());
    const auto node = static_cast<uint32_t>(graph_.nodes.size());
    std::vector<uint32_t> slots;
    for (size_t i = 0; i < storages.size(); ++i) {
      const auto [at, is_new] = slot_of_.try_emplace(
          storages[i], static_cast<uint32_t>(graph_.slots.size()));
      if (is_new) {
        graph_.slots.push_back(call.graph.slots[i]);
        given_.push_back(call.slots[i]);
        last_use_.push_back(0);
      }
      slots.push_back(at->second);
      last_use_[at->second] = node;
    }
    srg::Node added = call.graph.nodes[0];
    added.operator_index = static_cast<uint32_t>(graph_.operators.size());
    graph_.operators.push_back(call.graph.operators[0]);
    const auto renumber = [&](auto* value) {
      if (auto* const view = std::get_if<srg::TensorView>(value)) {
        view->slot = slots[view->slot];
      }
    };
    for (srg::Argument& argument : added.arguments) {
      renumber(&argument);
      if (auto* const scalar = std::get_if<srg::ScalarTensor>(&argument)) {
        scalar->hole += static_cast<uint32_t>(scalar_tensors_.size());
      } else if (auto* const hole = std::get_if<srg::FloatHole>(&argument)) {
        hole->index += static_cast<uint32_t>(floats_.size());
      }
    }
    for (srg::Result& made : added.results) renumber(&made);
    graph_.nodes.push_back(std::move(added));
    scalar_tensors_.insert(scalar_tensors_.end(), call.scalar_tensors.begin(),
                           call.scalar_tensors.end());
    floats_.insert(floats_.end(), call.floats.begin(), call.floats.end());
    graph_.scalar_tensor_hole_count =
        static_cast<uint32_t>(scalar_tensors_.size());
    graph_.float_hole_count = static_cast<uint32_t>(floats_.size());
  }

  ProgramTester* const tester_;
  srg::Graph graph_;
  std::vector<std::shared_ptr<Buffer>> given_, slots_;
  std::vector<double> floats_;
  std::vector<std::string> scalar_tensors_;
  std::map<c10::StorageImpl*, uint32_t> slot_of_;
  std::vector<uint32_t> last_use_;
  // Keeps storages alive, so that no address is used twice.
  std::vector<at::Tensor> kept_;
  std::unique_ptr<CompiledProgram> program_;
  int unmade_ = 0;
  std::map<uint32_t, at::Tensor> seen_;
};

class AttentionPassTest : public testing::Test {
 protected:
  at::Tensor Random(std::vector<int64_t> sizes) {
    inputs_.push_back(at::randn(sizes));
    return inputs_.back();
  }
  static at::Tensor Number(double value) {
    return at::native::wrapped_scalar_tensor(value);
  }

  // Expects the fused result, and `unmade` values left unwritten.
  void ExpectFused(Calls* calls, const at::Tensor& expected, int unmade) {
    calls->Compile();
    for (int i = 0; i < kRuns; ++i) {
      const auto result = calls->Run(/*fast=*/true);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(calls->unmade(), unmade);
      EXPECT_EQ(result->sizes(), expected.sizes());
      EXPECT_TRUE(result->is_contiguous());
      EXPECT_TRUE(at::allclose(*result, expected, 1e-4, 1e-5, true)) << i;
    }
    const auto strict = calls->Run(/*fast=*/false);
    ASSERT_TRUE(strict.ok()) << strict.status();
    EXPECT_EQ(calls->unmade(), 0);
    EXPECT_TRUE(SameBits(*strict, expected));
  }
  void ExpectPlain(Calls* calls, const at::Tensor& expected) {
    calls->Compile();
    const auto result = calls->Run(/*fast=*/true);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(calls->unmade(), 0);
    EXPECT_TRUE(at::allclose(*result, expected, 1e-4, 1e-5, true));
  }

  ProgramTester tester_;
  std::vector<at::Tensor> inputs_;
  at::Tensor q_ = Random({2, kHeads, kTokens, kWidth});
  at::Tensor k_ = Random({2, kHeads, kTokens, kWidth});
  at::Tensor v_ = Random({2, kHeads, kTokens, kWidth});
  at::Tensor mask_ = Random({2, 1, kTokens, kTokens});
};

TEST_F(AttentionPassTest, ScaledMaskedSoftmaxOfHeads) {
  Calls calls(&tester_);
  at::Tensor x = calls.Call("aten::matmul", "", {q_, k_.transpose(-2, -1)});
  x = calls.Call("aten::div", "Tensor", {x, Number(4)});
  x = calls.Call("aten::add", "Tensor", {x, mask_, 1});
  x = calls.Call("aten::softmax", "int", {x, -1});
  x = calls.Call("aten::matmul", "", {x, v_});
  ExpectFused(&calls, x, 4);
}

TEST_F(AttentionPassTest, OtherSpellings) {
  {
    // Three-dimensional batches, with neither scale nor mask.
    const at::Tensor q = Random({8, kTokens, kWidth}),
                     k = Random({8, kTokens, kWidth}),
                     v = Random({8, kTokens, kWidth});
    Calls calls(&tester_);
    at::Tensor x = calls.Call("aten::bmm", "", {q, k.transpose(1, 2)});
    x = calls.Call("aten::_softmax", "", {x, 2, false});
    x = calls.Call("aten::bmm", "", {x, v});
    ExpectFused(&calls, x, 2);
  }
  {
    // The scores are the second operand, a bias and a mask are added, and the
    // number is the first operand.
    const at::Tensor bias = Random({1, kHeads, kTokens, kTokens});
    Calls calls(&tester_);
    at::Tensor x = calls.Call("aten::matmul", "", {q_, k_.transpose(-2, -1)});
    x = calls.Call("aten::mul", "Tensor", {Number(0.25), x});
    x = calls.Call("aten::add", "Tensor", {bias, x, 1});
    x = calls.Call("aten::add", "Tensor", {x, mask_, 1});
    x = calls.Call("aten::softmax", "int",
                   {x, 3, static_cast<int64_t>(at::kFloat)});
    x = calls.Call("aten::matmul", "", {x, v_});
    ExpectFused(&calls, x, 5);
  }
  {
    Calls calls(&tester_);
    at::Tensor x = calls.Call("aten::matmul", "", {q_, k_.transpose(-2, -1)});
    x = calls.Call("aten::mul", "Scalar", {x, 0.25});
    x = calls.Call("aten::softmax", "int", {x, -1});
    x = calls.Call("aten::matmul", "", {x, v_});
    ExpectFused(&calls, x, 3);
  }
}

TEST_F(AttentionPassTest, TheScaleIsTheRuns) {
  Calls calls(&tester_);
  at::Tensor x = calls.Call("aten::matmul", "", {q_, k_.transpose(-2, -1)});
  x = calls.Call("aten::mul", "Tensor", {x, Number(0.25)});
  x = calls.Call("aten::softmax", "int", {x, -1});
  x = calls.Call("aten::matmul", "", {x, v_});
  calls.Compile();
  for (const double scale : {0.25, 2.0, 0.0, -1.0}) {
    calls.scalar_tensors()->at(0).assign(reinterpret_cast<const char*>(&scale),
                                         sizeof(scale));
    const at::Tensor expected = at::matmul(
        at::softmax(at::matmul(q_, k_.transpose(-2, -1)) * scale, -1), v_);
    for (int i = 0; i < kRuns; ++i) {
      EXPECT_TRUE(at::allclose(*calls.Run(true), expected, 1e-4, 1e-5));
      EXPECT_EQ(calls.unmade(), 3);
    }
  }
}

TEST_F(AttentionPassTest, OtherOperandsAreOtherAnswers) {
  Calls calls(&tester_);
  at::Tensor x = calls.Call("aten::matmul", "", {q_, k_.transpose(-2, -1)});
  x = calls.Call("aten::add", "Tensor", {x, mask_, 1});
  x = calls.Call("aten::softmax", "int", {x, -1});
  x = calls.Call("aten::matmul", "", {x, v_});
  calls.Compile();
  for (int i = 0; i < kRuns; ++i) {
    const at::Tensor q = at::randn_like(q_), k = at::randn_like(k_),
                     v = at::randn_like(v_), mask = at::randn_like(mask_);
    calls.Replace(q_, q);
    calls.Replace(k_, k);
    calls.Replace(v_, v);
    calls.Replace(mask_, mask);
    const at::Tensor expected = at::matmul(
        at::softmax(at::matmul(q, k.transpose(-2, -1)) + mask, -1), v);
    EXPECT_TRUE(at::allclose(*calls.Run(true), expected, 1e-4, 1e-5)) << i;
  }
}

TEST_F(AttentionPassTest, MaskedElementsAndRows) {
  // Rows that are masked entirely are NaNs, as softmax returns them.
  for (const bool whole_row : {false, true}) {
    at::Tensor mask = at::zeros({kTokens, kTokens});
    mask.select(1, 5).fill_(kNothing);
    if (whole_row) mask.select(0, 3).fill_(kNothing);
    inputs_.push_back(mask);
    Calls calls(&tester_);
    at::Tensor x = calls.Call("aten::matmul", "", {q_, k_.transpose(-2, -1)});
    x = calls.Call("aten::add", "Tensor", {x, mask, 1});
    x = calls.Call("aten::softmax", "int", {x, -1});
    x = calls.Call("aten::matmul", "", {x, v_});
    EXPECT_EQ(x.isnan().any().item<bool>(), whole_row);
    ExpectFused(&calls, x, 3);
  }
}

TEST_F(AttentionPassTest, ReadIntermediatesAreComputed) {
  Calls calls(&tester_);
  const at::Tensor scores =
      calls.Call("aten::matmul", "", {q_, k_.transpose(-2, -1)});
  const at::Tensor weights = calls.Call("aten::softmax", "int", {scores, -1});
  const at::Tensor mixed = calls.Call("aten::matmul", "", {weights, v_});
  calls.Compile();
  for (const at::Tensor& kept : {scores, weights}) {
    const auto result = calls.Run(/*fast=*/true, {kept});
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(calls.unmade(), 0);
    EXPECT_TRUE(at::allclose(calls.Seen(kept), kept, 1e-4, 1e-5));
    EXPECT_TRUE(at::allclose(*result, mixed, 1e-4, 1e-5));
  }
  ASSERT_TRUE(calls.Run(/*fast=*/true).ok());
  EXPECT_EQ(calls.unmade(), 2);
}

TEST_F(AttentionPassTest, IntermediateReadByAnotherCallIsComputed) {
  Calls calls(&tester_);
  const at::Tensor scores =
      calls.Call("aten::matmul", "", {q_, k_.transpose(-2, -1)});
  const at::Tensor weights = calls.Call("aten::softmax", "int", {scores, -1});
  calls.Call("aten::sum", "", {weights});
  const at::Tensor mixed = calls.Call("aten::matmul", "", {weights, v_});
  ExpectPlain(&calls, mixed);
}

TEST_F(AttentionPassTest, TheEndOfOneIsTheStartOfAnother) {
  const at::Tensor wide = Random({2, kHeads, kTokens, kTokens});
  Calls calls(&tester_);
  at::Tensor x = calls.Call("aten::matmul", "", {q_, k_.transpose(-2, -1)});
  x = calls.Call("aten::softmax", "int", {x, -1});
  x = calls.Call("aten::matmul", "", {x, wide});
  x = calls.Call("aten::softmax", "int", {x, -1});
  x = calls.Call("aten::matmul", "", {x, v_});
  ExpectFused(&calls, x, 2);
}

TEST_F(AttentionPassTest, TheWeightsAreTheValues) {
  Calls calls(&tester_);
  at::Tensor x = calls.Call("aten::matmul", "", {q_, k_.transpose(-2, -1)});
  x = calls.Call("aten::softmax", "int", {x, -1});
  ExpectPlain(&calls, calls.Call("aten::matmul", "", {x, x}));
}

TEST_F(AttentionPassTest, UnwrittenPartsAreRefused) {
  Calls calls(&tester_);
  const at::Tensor x = calls.Call("aten::relu", "", {q_});
  calls.Compile();
  calls.Give(q_, std::make_shared<TorchBuffer>(
                     c10::Device(c10::kCPU), q_.storage().nbytes(),
                     std::make_shared<AttentionParts>()));
  EXPECT_THAT(calls.Run(/*fast=*/true).status().message(),
              testing::HasSubstr("nobody has written"));
}

TEST_F(AttentionPassTest, SimilarGraphsAreNotReplaced) {
  {
    // Softmax over the queries.
    Calls calls(&tester_);
    at::Tensor x = calls.Call("aten::matmul", "", {q_, k_.transpose(-2, -1)});
    x = calls.Call("aten::softmax", "int", {x, 2});
    ExpectPlain(&calls, calls.Call("aten::matmul", "", {x, v_}));
  }
  {
    // The mask counts twice.
    Calls calls(&tester_);
    at::Tensor x = calls.Call("aten::matmul", "", {q_, k_.transpose(-2, -1)});
    x = calls.Call("aten::add", "Tensor", {x, mask_, 2});
    x = calls.Call("aten::softmax", "int", {x, -1});
    ExpectPlain(&calls, calls.Call("aten::matmul", "", {x, v_}));
  }
  {
    // The last product reads a different view of the weights.
    Calls calls(&tester_);
    at::Tensor x = calls.Call("aten::matmul", "", {q_, k_.transpose(-2, -1)});
    x = calls.Call("aten::softmax", "int", {x, -1});
    ExpectPlain(&calls,
                calls.Call("aten::matmul", "", {x.transpose(-2, -1), v_}));
  }
  {
    // There are too few scores.
    const at::Tensor q = Random({1, 1, 8, kWidth}),
                     k = Random({1, 1, 8, kWidth}),
                     v = Random({1, 1, 8, kWidth});
    Calls calls(&tester_);
    at::Tensor x = calls.Call("aten::matmul", "", {q, k.transpose(-2, -1)});
    x = calls.Call("aten::softmax", "int", {x, -1});
    ExpectPlain(&calls, calls.Call("aten::matmul", "", {x, v}));
  }
}

TEST_F(AttentionPassTest, AnyProgramOfItsCalls) {
  std::mt19937 random(1);
  const auto draw = [&random](size_t count) { return random() % count; };
  int unmade = 0;
  for (int program = 0; program < 60; ++program) {
    SCOPED_TRACE(program);
    std::vector<at::Tensor> pool = {Random({kHeads, kTokens, kTokens}),
                                    Random({kHeads, kTokens, kTokens})};
    // Prefers the latest value, so that there are chains.
    const auto any = [&] {
      return draw(4) == 0 ? pool[draw(pool.size())] : pool.back();
    };
    Calls calls(&tester_);
    for (int step = 0; step < 9; ++step) {
      const at::Tensor a = any(), b = any();
      switch (draw(6)) {
        case 0:
          pool.push_back(calls.Call("aten::mul", "Tensor", {a, Number(0.1)}));
          break;
        case 1:
          pool.push_back(calls.Call("aten::add", "Tensor", {a, b, 1}));
          break;
        case 2:
          pool.push_back(
              calls.Call("aten::matmul", "", {a, b.transpose(-2, -1)}));
          break;
        case 3:
          pool.push_back(calls.Call("aten::matmul", "", {a, b}));
          break;
        default:
          pool.push_back(calls.Call("aten::softmax", "int", {a, -1}));
      }
    }
    calls.Compile();
    for (int i = 0; i < 4; ++i) {
      const auto result = calls.Run(/*fast=*/true);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_TRUE(at::allclose(*result, pool.back(), 1e-3, 1e-4, true));
    }
    unmade += calls.unmade();
  }
  EXPECT_GT(unmade, 0);
}

TEST_F(AttentionPassTest, CanBeSwitchedOff) {
  auto device = MakeCpuDevice({.threads = 1, .fuse_attention = false}).value();
  Calls calls(&tester_);
  at::Tensor x = calls.Call("aten::matmul", "", {q_, k_.transpose(-2, -1)});
  x = calls.Call("aten::softmax", "int", {x, -1});
  x = calls.Call("aten::matmul", "", {x, v_});
  calls.CompileFor(device->operators());
  ASSERT_TRUE(calls.Run(/*fast=*/true).ok());
  EXPECT_EQ(calls.unmade(), 0);
}

}  // namespace
}  // namespace djinn::worker
