#include "scheduler/semantics/analysis/analysis.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/semantics/analysis/testing.h"

namespace djinn::semantics {
namespace {

using ::testing::ElementsAre;

using Entries = std::vector<srg::TensorListEntry>;
using Integers = std::vector<int64_t>;

std::vector<Phase> Phases(const Meaning& meaning) {
  std::vector<Phase> phases;
  for (const NodeMeaning& node : meaning.nodes) phases.push_back(node.phase);
  return phases;
}

// Builds one step of a decoder: tokens are looked up, and keys joined with
// earlier ones.
Builder DecodeStep(int64_t before, int64_t tokens) {
  Builder b;
  const auto x =
      b.Call("embedding", {b.Bound({96, 64}), b.Integers({1, tokens})},
             {1, tokens, 64});
  const auto q = b.Linear(x, 64), k = b.Linear(x, 64), v = b.Linear(x, 64);
  const Shape heads = {1, 4, tokens, 16};
  const Shape all = {1, 4, before + tokens, 16};
  const auto cache = [&](const srg::TensorView& fresh) {
    const auto old = before == 0 ? b.Bound({0}) : b.Bound({1, 4, before, 16});
    return b.Call("cat", {Entries{old, Builder::As(fresh, heads)}, int64_t{-2}},
                  all);
  };
  const auto keys = cache(k), values = cache(v);
  const auto y = b.Call("scaled_dot_product_attention",
                        {Builder::As(q, heads), keys, values}, heads);
  const auto out = b.Linear(Builder::As(y, {1, tokens, 64}), 96);
  b.Call("argmax", {out}, {1, tokens}, srg::DataType::kInt64);
  return b;
}

TEST(AnalysisTest, DecodeStep) {
  const Builder step = DecodeStep(7, 1);
  const Meaning meaning = Analyze(step.graph());
  EXPECT_EQ(meaning.phase, Phase::kLlmDecode);
  EXPECT_THAT(Phases(meaning), ::testing::Each(Phase::kLlmDecode));
  EXPECT_EQ(meaning.modality, Modality::kText);
  EXPECT_EQ(meaning.workload_class, WorkloadClass::kTransformer);
  EXPECT_EQ(meaning.task_type, TaskType::kGeneration);
  // Four caches: two old ones, two new ones.
  EXPECT_EQ(meaning.kv_cache_bytes, 4u * 64 * (2 * 7 + 2 * 8));
  EXPECT_EQ(meaning.weight_bytes, 4u * (96 * 64 + 3 * 64 * 64 + 96 * 64));
  ASSERT_EQ(meaning.stages.size(), 1u);
  EXPECT_EQ(meaning.stages[0].node_count, step.graph().nodes.size());
  EXPECT_EQ(meaning.stages[0].weight_bytes, meaning.weight_bytes);
}

TEST(AnalysisTest, PrefillIsWhatComesFirst) {
  EXPECT_EQ(Analyze(DecodeStep(0, 9).graph()).phase, Phase::kLlmPrefill);
  // One token without earlier ones.
  EXPECT_EQ(Analyze(DecodeStep(0, 1).graph()).phase, Phase::kLlmPrefill);
  // Several tokens behind earlier ones.
  EXPECT_EQ(Analyze(DecodeStep(7, 3).graph()).phase, Phase::kLlmPrefill);
}

TEST(AnalysisTest, AnEncoderBesideADecoder) {
  Builder b;
  const auto memory_tokens =
      b.Call("embedding", {b.Bound({96, 64}), b.Integers({1, 6})}, {1, 6, 64});
  const auto attend = [&](const srg::TensorView& x, const srg::TensorView& y,
                          int64_t queries, int64_t keys) {
    const auto q = b.Linear(x, 64), k = b.Linear(y, 64), v = b.Linear(y, 64);
    const auto out = b.Call(
        "scaled_dot_product_attention",
        {Builder::As(q, {1, 4, queries, 16}), Builder::As(k, {1, 4, keys, 16}),
         Builder::As(v, {1, 4, keys, 16})},
        {1, 4, queries, 16});
    return b.Linear(Builder::As(out, {1, queries, 64}), 64);
  };
  const auto memory = attend(memory_tokens, memory_tokens, 6, 6);
  const int encoder_end = b.last();
  const auto token =
      b.Call("embedding", {b.Bound({96, 64}), b.Integers({1, 1})}, {1, 1, 64});
  attend(token, memory, 1, 6);
  const Meaning meaning = Analyze(b.graph());
  EXPECT_EQ(meaning.nodes[0].phase, Phase::kForward);
  EXPECT_EQ(meaning.nodes[encoder_end].phase, Phase::kForward);
  EXPECT_EQ(meaning.nodes.back().phase, Phase::kLlmDecode);
  ASSERT_EQ(meaning.stages.size(), 2u);
  EXPECT_THAT(meaning.stages[1].inputs, ElementsAre(0));
  EXPECT_EQ(meaning.stages[1].input_bytes, 4u * 6 * 64);
}

TEST(AnalysisTest, PixelsToALatentAndBack) {
  Builder b;
  const auto convolve = [&](const srg::TensorView& x, Shape weight, Shape out) {
    return b.Call("conv2d", {x, b.Bound(weight), std::monostate()}, out);
  };
  const auto latent =
      convolve(b.Bound({1, 3, 16, 16}), {4, 3, 3, 3}, {1, 4, 8, 8});
  const auto wide = convolve(latent, {32, 4, 3, 3}, {1, 32, 8, 8});
  const auto large =
      b.Call("upsample_nearest2d", {wide, Integers{16, 16}}, {1, 32, 16, 16});
  convolve(large, {3, 32, 3, 3}, {1, 3, 16, 16});
  const Meaning meaning = Analyze(b.graph());
  EXPECT_THAT(Phases(meaning),
              ElementsAre(Phase::kVisionEncoding, Phase::kVisionDecoding,
                          Phase::kVisionDecoding, Phase::kVisionDecoding));
  EXPECT_EQ(meaning.workload_class, WorkloadClass::kCnn);
  EXPECT_EQ(meaning.modality, Modality::kVision);
}

// The image was encoded as tokens. The decoder's first convolution has fewer
// channels.
TEST(AnalysisTest, TokensToAnImage) {
  Builder b;
  const auto patches = b.Call("conv2d",
                              {b.Bound({1, 3, 16, 16}), b.Bound({48, 3, 4, 4}),
                               std::monostate(), Integers{4, 4}},
                              {1, 48, 4, 4});
  const auto rows =
      b.Call("layer_norm",
             {Builder::As(patches, {1, 16, 48}), Integers{48}, b.Bound({48})},
             {1, 16, 48});
  auto turned = Builder::As(rows, {1, 48, 4, 4});
  turned.strides.assign({768, 1, 192, 48});
  const auto image = b.Call("clone", {turned}, {1, 48, 4, 4});
  const auto narrow =
      b.Call("conv2d", {image, b.Bound({16, 48, 1, 1}), std::monostate()},
             {1, 16, 4, 4});
  const auto narrower =
      b.Call("conv2d", {narrow, b.Bound({8, 16, 3, 3}), std::monostate()},
             {1, 8, 4, 4});
  b.Call("upsample_nearest2d", {narrower, Integers{8, 8}}, {1, 8, 8, 8});
  EXPECT_THAT(Phases(Analyze(b.graph())),
              ElementsAre(Phase::kVisionEncoding, Phase::kVisionEncoding,
                          Phase::kVisionDecoding, Phase::kVisionDecoding,
                          Phase::kVisionDecoding, Phase::kVisionDecoding));
}

TEST(AnalysisTest, ImageRowsAmongTokens) {
  Builder b;
  const auto image = b.Call("conv2d",
                            {b.Bound({1, 3, 16, 16}), b.Bound({64, 3, 4, 4}),
                             std::monostate(), Integers{4, 4}},
                            {1, 64, 4, 4});
  const auto rows = b.Linear(Builder::As(image, {1, 16, 64}), 64);
  const auto tokens = b.Call(
      "embedding", {b.Bound({96, 64}), b.Integers({1, 20})}, {1, 20, 64});
  b.Call("masked_scatter",
         {tokens, b.Bound({1, 20, 64}, srg::DataType::kBool), rows},
         {1, 20, 64});
  const Meaning meaning = Analyze(b.graph());
  EXPECT_EQ(meaning.nodes[0].phase, Phase::kVisionEncoding);
  EXPECT_EQ(meaning.nodes[1].phase, Phase::kMultimodalFusion);
  EXPECT_EQ(meaning.nodes[3].phase, Phase::kMultimodalFusion);
  EXPECT_EQ(meaning.nodes[2].modality, Modality::kText);
  EXPECT_EQ(meaning.workload_class, WorkloadClass::kMultimodal);
}

TEST(AnalysisTest, TrainingAndItsResidencies) {
  Builder b;
  const auto x = b.Bound({10, 16});
  const auto weight = b.Bound({8, 16});
  const auto scores = b.Call("mm", {x, Builder::Transposed(weight)}, {10, 8});
  const auto shares =
      b.Call("_log_softmax", {scores, int64_t{1}, false}, {10, 8});
  b.Call("nll_loss_forward", {shares, b.Integers({10})}, {});
  const auto gradient = b.Call("_log_softmax_backward_data",
                               {b.Bound({10, 8}), shares, int64_t{1}}, {10, 8});
  const auto weights =
      b.Call("mm", {Builder::Transposed(gradient), x}, {8, 16});
  const Meaning meaning = Analyze(b.graph());
  EXPECT_THAT(Phases(meaning), ::testing::Each(Phase::kTraining));
  EXPECT_EQ(meaning.task_type, TaskType::kTraining);
  EXPECT_EQ(meaning.slots[weight.slot].residency, Residency::kPersistentWeight);
  EXPECT_EQ(meaning.slots[weights.slot].residency, Residency::kGradient);
  EXPECT_EQ(meaning.slots[x.slot].residency, Residency::kEphemeralActivation);
}

// A projector pools the output of an image's encoder, and normalizes it.
TEST(AnalysisTest, PoolingThatAProjectorBeginsWith) {
  Builder b;
  const auto image =
      b.Call("conv2d", {b.Bound({1, 3, 16, 16}), b.Bound({24, 3, 4, 4})},
             {1, 24, 4, 4});
  const auto pooled =
      b.Call("avg_pool2d", {image, Integers{2, 2}}, {1, 24, 2, 2});
  const auto norm =
      b.Call("layer_norm", {Builder::As(pooled, {1, 4, 24}), Integers{24}},
             {1, 4, 24});
  b.Call("masked_scatter",
         {b.Bound({1, 9, 64}), b.Bound({1, 9, 64}, srg::DataType::kBool),
          b.Linear(norm, 64)},
         {1, 9, 64});
  const Meaning meaning = Analyze(b.graph());
  EXPECT_EQ(meaning.nodes[0].phase, Phase::kVisionEncoding);
  for (int i = 1; i < 5; ++i) {
    EXPECT_EQ(meaning.nodes[i].phase, Phase::kMultimodalFusion) << i;
    EXPECT_EQ(meaning.nodes[i].modality, Modality::kFusion) << i;
  }
}

// An encoder's stage passes its output on beside the enlarged image.
TEST(AnalysisTest, ConvolutionsBesideAnEnlargedImage) {
  Builder b;
  const auto stage =
      b.Call("conv2d", {b.Bound({1, 3, 16, 16}), b.Bound({24, 3, 3, 3})},
             {1, 24, 8, 8});
  const auto last =
      b.Call("conv2d", {stage, b.Bound({24, 24, 3, 3})}, {1, 24, 4, 4});
  const auto large =
      b.Call("upsample_bilinear2d", {last, Integers{8, 8}}, {1, 24, 8, 8});
  const auto beside =
      b.Call("conv2d", {stage, b.Bound({8, 24, 1, 1})}, {1, 8, 8, 8});
  b.Call("cat", {Entries{beside, large}, int64_t{1}}, {1, 32, 8, 8});
  EXPECT_THAT(Phases(Analyze(b.graph())),
              ElementsAre(Phase::kVisionEncoding, Phase::kVisionEncoding,
                          Phase::kVisionDecoding, Phase::kVisionDecoding,
                          Phase::kVisionDecoding));
}

// A bare product of rows whose columns were made side by side.
TEST(AnalysisTest, ProductsOfTurnedRowsAreNoTraining) {
  Builder b;
  auto rows = b.Call("avg_pool2d", {b.Bound({1, 40, 4, 4}), Integers{2, 2}},
                     {1, 40, 2, 2});
  rows.sizes.assign({1, 4, 40});
  rows.strides.assign({160, 1, 4});
  b.Call("mul", {rows, b.Bound({40})}, {1, 4, 40});
  auto left = b.Lay({160, 1, 4});
  left.sizes.assign({4, 40});
  left.strides.assign({1, 4});
  const auto weight = b.Bound({40, 48});
  b.Call("mm", {left, weight}, {4, 48});
  const Meaning meaning = Analyze(b.graph());
  EXPECT_THAT(Phases(meaning), ::testing::Each(Phase::kUnspecified));
  EXPECT_EQ(meaning.slots[weight.slot].residency, Residency::kPersistentWeight);
}

// A product of columns with columns, as for correlations: no gradient is passed
// on.
TEST(AnalysisTest, SumsOverRowsAloneAreNoTraining) {
  Builder b;
  const auto x = b.Call("sub", {b.Bound({100, 16}), b.Bound({16})}, {100, 16});
  b.Call("mm", {Builder::Transposed(x), x}, {16, 16});
  b.Call("mm", {Builder::Transposed(b.Bound({100, 16})), x}, {16, 16});
  EXPECT_THAT(Phases(Analyze(b.graph())), ::testing::Each(Phase::kUnspecified));
}

// A piece of a backward pass without a call that only autograd makes, for both
// ways in which a weight may be stored.
TEST(AnalysisTest, GradientsThatGoOnAreTraining) {
  for (const bool turned : {true, false}) {
    Builder b;
    const auto gradient = b.Bound({10, 8});
    const auto x = b.Bound({10, 16});
    if (turned) {
      b.Call("mm", {gradient, b.Bound({8, 16})}, {10, 16});
      b.Call("mm", {Builder::Transposed(gradient), x}, {8, 16});
    } else {
      b.Call("mm", {gradient, Builder::Transposed(b.Bound({16, 8}))}, {10, 16});
      b.Call("mm", {Builder::Transposed(x), gradient}, {16, 8});
    }
    EXPECT_THAT(Phases(Analyze(b.graph())), ::testing::Each(Phase::kTraining))
        << turned;
  }
}

// A product with a transposed weight shows training only where nothing shows
// that no gradient is recorded.
TEST(AnalysisTest, WholeCompositesBehindASplitProduct) {
  for (const bool whole : {true, false}) {
    Builder b;
    const auto hidden = b.Call("addmm",
                               {b.Bound({32}), b.Bound({10, 16}),
                                Builder::Transposed(b.Bound({32, 16}))},
                               {10, 32});
    const auto active = b.Call("relu", {hidden}, {10, 32});
    if (whole) b.Linear(active, 8);
    EXPECT_THAT(
        Phases(Analyze(b.graph())),
        ::testing::Each(whole ? Phase::kUnspecified : Phase::kTraining));
  }
}

TEST(AnalysisTest, EdgesAndTheirWeight) {
  Builder b;
  const auto x = b.Call("relu", {b.Bound({64, 64})}, {64, 64});
  auto part = x;
  part.sizes[0] = 16;
  b.Call("relu", {part}, {16, 64});
  const auto y = b.Linear(x, 4096);
  b.Call("relu", {y}, {64, 4096});
  const Meaning meaning = Analyze(b.graph());
  ASSERT_EQ(meaning.edges.size(), 3u);
  EXPECT_EQ(meaning.edges[0].producer, 0u);
  EXPECT_EQ(meaning.edges[0].consumer, 1u);
  EXPECT_DOUBLE_EQ(meaning.edges[0].rate, 0.25);
  EXPECT_LT(meaning.edges[0].criticality, 1);
  EXPECT_GT(meaning.edges[0].criticality, 0);
  EXPECT_DOUBLE_EQ(meaning.edges[1].rate, 1);
  EXPECT_DOUBLE_EQ(meaning.edges[1].criticality, 1);
  EXPECT_DOUBLE_EQ(meaning.edges[2].criticality, 1);
}

TEST(AnalysisTest, PeakMemoryFollowsLifetimes) {
  Builder b;
  auto x = b.Bound({100});
  for (int i = 0; i < 5; ++i) x = b.Call("relu", {x}, {100});
  // Two values exist at a time, however long the chain is.
  EXPECT_EQ(Analyze(b.graph()).peak_bytes, 800u);
}

TEST(AnalysisTest, NothingIsGuessed) {
  Builder b;
  b.Call("relu", {b.Bound({4, 4})}, {4, 4});
  const Meaning meaning = Analyze(b.graph());
  EXPECT_EQ(meaning.phase, Phase::kUnspecified);
  EXPECT_EQ(meaning.workload_class, WorkloadClass::kUnspecified);
  EXPECT_EQ(meaning.task_type, TaskType::kUnspecified);
  EXPECT_EQ(Analyze(srg::Graph()).nodes.size(), 0u);
}

// A call with an operator's name may have too few operands.
TEST(AnalysisTest, CallsThatLackWhatTheirNamesPromise) {
  for (const char* const op : {"linear",
                               "addmm",
                               "mm",
                               "bmm",
                               "matmul",
                               "masked_scatter",
                               "cos",
                               "sin",
                               "upsample_bilinear2d",
                               "upsample_bicubic2d",
                               "sigmoid_",
                               "tanh_",
                               "embedding",
                               "convolution",
                               "layer_norm",
                               "softmax",
                               "cat",
                               "copy_",
                               "index",
                               "index_copy",
                               "mul",
                               "add",
                               "rsqrt",
                               "div",
                               "pow",
                               "maximum",
                               "stack",
                               "im2col",
                               "bucketize",
                               "index_select",
                               "clone",
                               "zeros_like",
                               "scaled_dot_product_attention",
                               "native_layer_norm_backward"}) {
    for (size_t operands = 0; operands < 4; ++operands) {
      for (const Shape& sizes : {Shape(), Shape{4}, Shape{1, 2, 3, 4}}) {
        Builder b;
        const auto before = b.Call("layer_norm", {b.Bound({1})}, {});
        std::vector<srg::Argument> arguments;
        for (size_t k = 0; k < operands; ++k) {
          arguments.push_back(k == 1 ? b.Bound({4, 4})
                                     : Builder::As(before, sizes));
        }
        const auto made = b.Call(op, arguments, {4});
        b.Call(op, {made}, {});
        EXPECT_EQ(Analyze(b.graph()).nodes.size(), 3u) << op;
      }
    }
  }
}

// The calls that made its operands may lack operands, too.
TEST(AnalysisTest, CallsOfWhatCallsWithoutOperandsMade) {
  const std::vector<const char*> ops = {
      "add",     "addmm",   "cat",   "clone",     "copy_",  "cos",
      "div",     "eq",      "index", "linear",    "matmul", "mean",
      "mul",     "mul_",    "neg",   "pow",       "rsqrt",  "sin",
      "sigmoid", "softmax", "stack", "sub",       "sum",    "tanh",
      "where",   "bmm",     "mm",    "embedding", "gelu",   "repeat"};
  for (const char* const first : ops) {
    for (const char* const second : ops) {
      for (const bool behind : {false, true}) {
        Builder b;
        const auto heads = b.Bound({1, 2, 3, 4});
        const auto made = b.Call(first, {}, {1, 2, 3, 4});
        const auto next =
            b.Call(second,
                   behind ? std::vector<srg::Argument>{heads, made}
                          : std::vector<srg::Argument>{made, heads},
                   {1, 2, 3, 4});
        b.Call("mul", {next, made}, {1, 2, 3, 4});
        EXPECT_EQ(Analyze(b.graph()).nodes.size(), 3u)
            << first << " " << second;
      }
    }
  }
}

}  // namespace
}  // namespace djinn::semantics
