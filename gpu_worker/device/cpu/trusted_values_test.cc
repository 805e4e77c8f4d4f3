// Tests operators whose kernels on the CPU trust the values of their operands.
// With values as programs have them, the operators return what PyTorch does.
// Other values give a clear error. Without the guards (value_guards.h) each of
// these tests ends the process.
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/core/List.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/rand.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/tensor.h"
#include "ATen/ops/zeros.h"
#include "absl/time/time.h"
#include "common/base/error.h"
#include "gpu_worker/device/cpu/program_tester.h"
#include "gpu_worker/device/cpu/torch_program.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using Ints = std::vector<int64_t>;
using c10::IValue;
using torch::jit::Stack;

constexpr int64_t kFar = int64_t{1} << 40;
constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

at::Tensor Longs(const Ints& values) { return at::tensor(values, at::kLong); }

class TrustedValuesTest : public testing::Test {
 protected:
  void ExpectGood(const std::string& op, const Stack& arguments,
                  const std::string& overload = "") {
    tester_.ExpectGood(op, arguments, overload);
  }

  // Expects that the call with `value` at `place` fails, with `text` in the
  // error.
  void ExpectBad(const std::string& op, Stack arguments, size_t place,
                 IValue value, const std::string& text,
                 const std::string& overload = "",
                 const at::Tensor& result = at::zeros({1})) {
    arguments[place] = std::move(value);
    const std::vector<at::Tensor> results(
        FindOperator("aten::" + op, overload).schema().returns().size(),
        result);
    for (const bool fast : {false, true}) {
      EncodedCall call =
          tester_.Encode("aten::" + op, overload, arguments, results);
      const auto program = tester_.library()->Compile(call.graph);
      ASSERT_TRUE(program.ok()) << op << ": " << program.status();
      NodeInput input = call.input();
      input.fast = fast;
      std::vector<NodeResult> made;
      const absl::Status status = (*program)->Execute(0, input, &made);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_EQ(ErrorReason(status), reason_) << op;
      EXPECT_NE(status.message().find(text), absl::string_view::npos) << status;
      EXPECT_NE(status.message().find("aten::" + op), absl::string_view::npos)
          << status;
      EXPECT_TRUE(made.empty());
    }
  }

  // Expects that the call fails if the last index at `place` is far out of
  // range.
  void ExpectBounded(const std::string& op, const Stack& arguments,
                     size_t place, const std::string& overload = "") {
    const at::Tensor good = arguments[place].toTensor();
    const std::string name = FindOperator("aten::" + op, overload)
                                 .schema()
                                 .arguments()[place]
                                 .name();
    for (const int64_t bad : {kFar, -kFar, int64_t{100000}, int64_t{-2}}) {
      const int64_t value =
          good.scalar_type() == at::kInt && (bad == kFar || bad == -kFar)
              ? bad >> 10
              : bad;
      at::Tensor last = good.clone();
      last.view({-1})[-1].fill_(value);
      ExpectBad(op, arguments, place, last, "argument " + name, overload);
    }
  }

  // The reason of the errors that ExpectBad() expects.
  std::string reason_ = "OPERATOR_FAILED";
  ProgramTester tester_;
};

TEST_F(TrustedValuesTest, OffsetsOfBags) {
  for (const char* const op :
       {"_embedding_bag", "_embedding_bag_forward_only", "embedding_bag"}) {
    const Stack good = {at::randn({5, 3}),
                        Longs({0, 4, 2, 1}),
                        Longs({0, 1, 3}),
                        false,
                        0,
                        false,
                        IValue(),
                        false};
    ExpectGood(op, good);
    ExpectBad(op, good, 2, Longs({0, 1, -kFar}), "argument offsets");
    ExpectBad(op, good, 2, Longs({0, kFar, 3}), "argument offsets");
    ExpectBad(op, good, 2, Longs({}), "argument offsets");
    ExpectBad(op, good, 4, 7, "argument mode");
    ExpectBad(op, good, 0, at::randn({15}), "argument weight");
  }
  ExpectBad("_embedding_bag",
            {at::randn({5, 3}), Longs({0, 4, 2, 1}), Longs({0, 1, 3})}, 1,
            Longs({2}).expand({4}), "argument indices");
}

TEST_F(TrustedValuesTest, LabelsOfAnAlignment) {
  const at::Tensor scores = at::randn({6, 2, 5}).log_softmax(2);
  // Elements beyond a row's length are padding.
  ExpectGood("ctc_loss",
             {scores, Longs({1, 2, -1, 3, -1, kFar}).view({2, 3}), Ints{6, 5},
              Ints{2, 1}},
             "IntList");
  const at::Tensor row = Longs({1, 2, 3, 4});
  for (const at::Tensor& targets : {row.view({2, 2}), row}) {
    const Stack good = {scores, targets, Ints{6, 6}, Ints{2, 2}};
    ExpectGood("_ctc_loss", good);
    ExpectBounded("_ctc_loss", good, 1);
    ExpectGood("ctc_loss", good, "IntList");
    ExpectBounded("ctc_loss", good, 1, "IntList");
    const Stack tensors = {scores, targets, Longs({6, 6}), Longs({2, 2})};
    ExpectGood("_ctc_loss", tensors, "Tensor");
    ExpectBounded("_ctc_loss", tensors, 1, "Tensor");
  }
}

TEST_F(TrustedValuesTest, SizesOfPackedBatches) {
  const std::string op = "_pad_packed_sequence";
  const Stack good = {at::randn({6, 2}), Longs({3, 2, 1}), false, 0.0, 3};
  ExpectGood(op, good);
  ExpectBad(op, good, 1, Longs({3, 2, -kFar}), "argument batch_sizes");
  ExpectBad(op, good, 1, Longs({1, 3, 2}), "argument batch_sizes");
  ExpectBad(op, good, 1, Longs({}), "argument batch_sizes");
}

TEST_F(TrustedValuesTest, SegmentsOfData) {
  const at::Tensor data = at::randn({6, 2});
  const std::string sum = "sum";
  const IValue none;
  const Stack offsets = {data, sum, none, none, Longs({0, 2, 6})};
  const Stack lengths = {data, sum, Longs({2, 4}), none, none, 0, true};
  ExpectGood("segment_reduce", offsets);
  ExpectGood("segment_reduce", lengths);
  ExpectBounded("segment_reduce", offsets, 4);
  ExpectBounded("segment_reduce", lengths, 2);
}

TEST_F(TrustedValuesTest, ProductsWithWeightsOfFourBits) {
  const int64_t rows = 6, columns = 64, block = 32;
  const at::Tensor weights = at::ones({rows, columns / 2}, at::kByte) * 37;
  const at::Tensor scales = at::rand({rows * columns / block});
  const at::Tensor bias = at::rand({rows});
  const Stack pack = {weights, scales, bias, block, columns, rows};
  const std::string packing = "_dyn_quant_pack_4bit_weight";
  ExpectGood(packing, pack);
  ExpectBad(packing, pack, 0, weights.slice(0, 1), "argument weights");
  ExpectBad(packing, pack, 1, scales.slice(0, 1), "argument scales_zeros");
  ExpectBad(packing, pack, 2, bias.slice(0, 1), "argument bias");
  const at::Tensor packed = at::rand({rows * (columns / 2 + 2)}) * 200;
  const Stack good = {at::randn({3, columns}), packed, block, columns, rows};
  const std::string op = "_dyn_quant_matmul_4bit";
  ExpectGood(op, good);
  const at::Tensor with_bias = at::rand({rows * (columns / 2 + 3)}) * 200;
  ExpectGood(op, {good[0], with_bias, block, columns, rows});
  ExpectBad(op, good, 0, at::randn({3, columns - 2}), "argument inp");
  ExpectBad(op, good, 0, at::randn({columns, 3}).t(), "argument inp");
  ExpectBad(op, good, 1, packed.slice(0, 1), "argument packed_weights");
  ExpectBad(op, good, 1, at::rand({2 * packed.numel()}).slice(0, 0, -1, 2),
            "argument packed_weights");
  for (const int64_t bad : {int64_t{0}, int64_t{-32}, int64_t{48}, kFar}) {
    ExpectBad(op, good, 2, bad, "argument block_size");
  }
  for (const int64_t bad : {int64_t{0}, int64_t{-64}, int64_t{63}, kFar}) {
    ExpectBad(op, good, 3, bad, "argument in_features");
  }
  for (const int64_t bad : {int64_t{0}, int64_t{-6}, kFar}) {
    ExpectBad(op, good, 4, bad, "argument out_features");
  }
}

// The kernel would draw for ever.
TEST_F(TrustedValuesTest, CountsOfTrials) {
  const at::Tensor counts = at::full({3}, 5.0);
  ExpectBad("binomial", {counts, at::full({3}, 0.5), IValue()}, 0,
            counts * kNone, "argument count");
}

// Checks huge tensors that repeat one number, or a few: calls on them would run
// practically forever.
TEST_F(TrustedValuesTest, ElementsThatAreRepeated) {
  const at::Tensor one = at::ones({1});
  const int64_t many = 1'000'000'000'000;
  reason_ = "WORK_LIMIT";
  const std::string text = "longest_call allows 1m";
  ExpectGood("sum", {one.expand({1 << 20}), IValue()});
  ExpectBad("sum", {one, IValue()}, 0, one.expand({many}), text);
  ExpectBad("sum", {one, IValue()}, 0, one.expand({1 << 20, 1 << 20}), text);
  ExpectBad("any", {one}, 0, one.expand({many}), text);
  ExpectBad("dist", {one, one}, 1, one.expand({many}), text);
  // A power for each element takes longer than a sum.
  const at::Tensor much = one.expand({int64_t{1} << 33});
  ExpectGood("linalg_vector_norm",
             {one.expand({1 << 20}), 2.5, IValue(), false, IValue()});
  ExpectBad("linalg_vector_norm", {one, 2.5, IValue(), false, IValue()}, 0,
            much, text);
  // Windows that overlap, behind an offset.
  const at::Tensor row = at::ones({1 << 13});
  ExpectGood("sum", {row.as_strided({64, 64}, {1, 1}, 7), IValue()});
  ExpectBad("sum", {row, IValue()}, 0,
            row.as_strided({2048, 2048, 1 << 14}, {1, 1, 0}, 7), text);

  // The factors of a product are small enough each by itself, but not together.
  const at::Tensor square = one.expand({32, 32});
  ExpectGood("mm", {square, square});
  ExpectBad("mm", {square, one.expand({1 << 23, 1 << 10})}, 0,
            one.expand({1 << 11, 1 << 23}), "are to be multiplied", "",
            at::zeros({1 << 11, 1 << 10}));
  const at::Tensor points = one.expand({1 << 12, 1 << 20});
  ExpectBad("_cdist_forward", {points, points, 2.0, IValue()}, 1, points,
            "are to be multiplied", "", at::zeros({1 << 12, 1 << 12}));
  const at::Tensor vector = at::ones({64});
  const at::Tensor queries = vector.expand({1, 1, 1 << 14, 64});
  const at::Tensor keys = vector.expand({1, 1, 1 << 24, 64});
  ExpectBad("_scaled_dot_product_flash_attention_for_cpu",
            {queries, keys, keys, 0.0, false, IValue(), IValue()}, 1, keys,
            "are to be multiplied", "", at::zeros({1, 1, 1 << 14, 64}));
  const at::Tensor image = one.expand({1, 1 << 12, 128, 128});
  const c10::List<int64_t> ones({1, 1});
  const c10::List<int64_t> zeros({0, 0});
  ExpectBad("convolution",
            {image, one.expand({1 << 8, 1 << 12, 64, 64}), IValue(), ones,
             zeros, ones, false, zeros, 1},
            0, image, "are to be multiplied", "",
            at::zeros({1, 1 << 8, 65, 65}));
}

TEST_F(TrustedValuesTest, AWorkerMayAllowLongerCalls) {
  CpuDeviceOptions options;
  options.longest_call = absl::Minutes(10);
  ProgramTester patient(options);
  const at::Tensor much = at::ones({1}).expand({int64_t{1} << 33});
  const EncodedCall call =
      patient.Encode("aten::linalg_vector_norm", "",
                     {much, 2.5, IValue(), false, IValue()}, {at::zeros({})});
  // Compiled only: the call would take a minute.
  const auto program = patient.library()->Compile(call.graph);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE(
      static_cast<const TorchProgram&>(**program).call(0).call.unusable.ok());
}

TEST_F(TrustedValuesTest, DimensionsThatTransformsIndexUnchecked) {
  const at::Tensor real = at::randn({3, 4});
  const at::Tensor half = at::randn({3, 3}, at::kComplexFloat);
  const Ints last = {1};
  ExpectGood("_fft_r2c", {real, last, 0, true});
  ExpectGood("_fft_c2c", {half, Ints{0, 1}, 0, true});
  ExpectGood("_fft_c2c", {half, Ints{}, 0, true});
  ExpectGood("_fft_c2r", {half, Ints{0, 1}, 0, 4});
  ExpectGood("_fft_c2r", {half, last, 0, 5});
  for (const Ints& bad :
       {Ints{1 << 30}, Ints{-(1 << 30)}, Ints{2}, Ints{-1}, Ints{0, 2}}) {
    ExpectBad("_fft_r2c", {real, last, 0, true}, 1, bad, "must be from 0 to 1");
    ExpectBad("_fft_c2c", {half, last, 0, true}, 1, bad, "must be from 0 to 1");
    ExpectBad("_fft_c2r", {half, last, 0, 4}, 1, bad, "must be from 0 to 1");
  }
  ExpectBad("_fft_c2c", {half, last, 0, true}, 1, Ints{1, 1},
            "is transformed twice");
  for (const int64_t bad : {6, 1 << 30, 0, -4}) {
    ExpectBad("_fft_c2r", {half, last, 0, 4}, 3, bad, "last_dim_size");
  }
}

TEST_F(TrustedValuesTest, DimensionsThatNoTensorHas) {
  const at::Tensor a = at::randn({3, 4});
  const auto run = [&](const std::string& op, const std::string& overload,
                       const Stack& arguments) {
    const CallOutcome outcome = tester_.Run(
        tester_.Encode("aten::" + op, overload, arguments, {at::zeros({1})}));
    EXPECT_EQ(ErrorReason(outcome.status), "OPERATOR_FAILED") << op;
    return std::string(outcome.status.message());
  };
  const std::string text =
      "Dimension out of range (expected to be in range of [-2, 1], but got "
      "1073741824)";
  EXPECT_EQ(run("sum", "dim_IntList", {a, Ints{1 << 30}, false, IValue()}),
            text);
  EXPECT_EQ(run("_softmax", "", {a, 1 << 30, false}), text);
  EXPECT_EQ(run("select", "int", {a, 1 << 30, 0}), text);
  // Operators may name a dimension that only their result or another operand
  // has.
  ExpectGood("unsqueeze", {a, 2});
  ExpectGood("unsqueeze", {a, -3});
  ExpectGood("stack", {std::vector<at::Tensor>{a, a}, 2});
  ExpectGood("select_backward", {at::randn({3, 4}), Ints{3, 4, 5}, 2, 1});
  ExpectGood("cosine_similarity", {at::randn({4}), at::randn({2, 3, 4}), -1});
  ExpectGood("diag_embed", {a, 0, -3, 2});
  ExpectGood("tile", {a, Ints{5, 7}});
  ExpectGood("sum", {at::randn({}), Ints{-1}, false, IValue()}, "dim_IntList");
}

TEST_F(TrustedValuesTest, NumbersThatAreNone) {
  const at::Tensor a = at::randn({4, 4});
  ExpectGood("linalg_eigvals", {a});
  for (const double none : {0.0, 1.0, -1.0}) {
    ExpectBad("linalg_eigvals", {a}, 0, a * (none / 0.0), "argument self");
  }

  const at::Tensor image = at::randn({1, 2, 4, 4});
  const at::Tensor grid = at::rand({1, 3, 3, 2});
  for (const int64_t padding : {0, 1, 2}) {
    const Stack good = {
        at::randn({1, 2, 3, 3}),      image, grid, 0, padding, false,
        c10::List<bool>({true, true})};
    const std::string op = "grid_sampler_2d_backward";
    ExpectGood(op, good);
    if (padding == 0) continue;
    ExpectBad(op, good, 2, grid * kNone, "argument grid");
    if (padding == 2) ExpectBad(op, good, 2, grid / 0, "argument grid");
  }
}

}  // namespace
}  // namespace djinn::worker
