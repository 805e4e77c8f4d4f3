// Rules for whole convolutions, for the one operator below them, and for their
// gradients.
#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "ATen/Context.h"
#include "c10/util/accumulate.h"
#include "client_lib/shape/rule_table.h"
#include "client_lib/shape/stride_inference.h"
#include "client_lib/shape/type_promotion.h"

namespace djinn {
namespace {

using c10::DimVector;
using c10::MemoryFormat;
using c10::ScalarType;

// A convolution over inputs with a batch dimension.
struct Convolution {
  ResultMeta input, weight;
  std::optional<ResultMeta> bias;
  DimVector stride, padding, dilation, output_padding;
  bool transposed = false;
  int64_t groups = 1;

  int64_t spatial_rank() const {
    return static_cast<int64_t>(weight.sizes.size()) - 2;
  }
};

// Repeats a single value for every spatial dimension.
DimVector Expanded(DimVector values, int64_t rank, const char* name) {
  if (values.size() == 1) values.resize(rank, values[0]);
  TORCH_CHECK(static_cast<int64_t>(values.size()) == rank, "expected ", name,
              " to be a single integer value or a list of ", rank,
              " values to match the convolution dimensions, but got ", name,
              "=", c10::IntArrayRef(values));
  return values;
}

// Returns the values of a parameter as PyTorch's errors list them.
std::string Named(const char* name, const DimVector& values, int64_t absent) {
  static constexpr const char* kNames[] = {"depth", "height", "width"};
  const size_t first = std::size(kNames) - values.size();
  std::string text;
  // A convolution of sequences is one of images of height 1.
  if (values.size() == 1) text = c10::str(" ", name, "_height: ", absent);
  for (size_t i = 0; i < values.size(); ++i) {
    text += c10::str(" ", name, "_", kNames[first + i], ": ", values[i]);
  }
  return text;
}

void CheckOutputPadding(const Convolution& conv) {
  // The CPU computes nothing, and checks nothing, for an empty input.
  if (!conv.transposed || conv.input.sizes[0] == 0 ||
      conv.input.sizes[1] == 0 || conv.spatial_rank() > 3) {
    return;
  }
  for (int64_t i = 0; i < conv.spatial_rank(); ++i) {
    TORCH_CHECK(conv.output_padding[i] < conv.stride[i] ||
                    conv.output_padding[i] < conv.dilation[i],
                "output padding must be smaller than either stride or "
                "dilation, but got",
                Named("output_padding", conv.output_padding, 0),
                Named("stride", conv.stride, 1),
                Named("dilation", conv.dilation, 1));
  }
}

void Check(const Convolution& conv) {
  const auto& input = conv.input.sizes;
  const auto& weight = conv.weight.sizes;
  TORCH_CHECK(conv.groups > 0, "non-positive groups is not supported");
  TORCH_CHECK(input.size() == weight.size(), "Expected ", weight.size(),
              "-dimensional input for ", weight.size(), "-dimensional weight ",
              c10::IntArrayRef(weight),
              ", but got input of size: ", c10::IntArrayRef(input), " instead");
  TORCH_CHECK(weight[0] >= conv.groups && weight[0] % conv.groups == 0,
              "Given groups=", conv.groups,
              ", expected weight to be divisible "
              "by it at dimension 0, but got weight of size ",
              c10::IntArrayRef(weight));
  const int64_t channels =
      conv.transposed ? weight[0] : weight[1] * conv.groups;
  TORCH_CHECK(input[1] == channels, "Given groups=", conv.groups,
              ", weight of size ", c10::IntArrayRef(weight), ", expected input",
              c10::IntArrayRef(input), " to have ", channels,
              " channels, but got ", input[1], " channels instead");
  for (int64_t i = 0; i < conv.spatial_rank(); ++i) {
    TORCH_CHECK(conv.padding[i] >= 0, "negative padding is not supported");
    TORCH_CHECK(conv.stride[i] > 0, "non-positive stride is not supported");
    TORCH_CHECK(conv.dilation[i] > 0, "dilation should be greater than zero");
    TORCH_CHECK(conv.output_padding[i] >= 0,
                "negative output_padding is not supported");
  }
  CheckOutputPadding(conv);
  TORCH_CHECK(conv.input.dtype == conv.weight.dtype, "Input type (",
              c10::toString(conv.input.dtype), ") and weight type (",
              c10::toString(conv.weight.dtype), ") should be the same");
  if (!conv.bias.has_value()) return;
  TORCH_CHECK(conv.input.dtype == conv.bias->dtype, "Input type (",
              c10::toString(conv.input.dtype), ") and bias type (",
              c10::toString(conv.bias->dtype), ") should be the same");
  const int64_t outputs = conv.transposed ? weight[1] * conv.groups : weight[0];
  TORCH_CHECK(conv.bias->sizes.size() == 1 && conv.bias->sizes[0] == outputs,
              "expected bias to be 1-dimensional with ", outputs,
              " elements, but got bias of size ",
              c10::IntArrayRef(conv.bias->sizes), " instead");
}

DimVector OutputSizes(const Convolution& conv) {
  DimVector sizes = {conv.input.sizes[0],
                     conv.transposed ? conv.weight.sizes[1] * conv.groups
                                     : conv.weight.sizes[0]};
  for (int64_t i = 0; i < conv.spatial_rank(); ++i) {
    const int64_t size = conv.input.sizes[i + 2];
    const int64_t kernel =
        conv.dilation[i] * (conv.weight.sizes[i + 2] - 1) + 1;
    if (conv.transposed) {
      sizes.push_back((size - 1) * conv.stride[i] - 2 * conv.padding[i] +
                      kernel + conv.output_padding[i]);
      continue;
    }
    const int64_t padded = size + 2 * conv.padding[i];
    TORCH_CHECK(padded >= kernel, "Calculated padded input size per channel: (",
                padded, "). Kernel size: (", kernel,
                "). Kernel size can't be greater than actual input size");
    sizes.push_back((padded - kernel) / conv.stride[i] + 1);
  }
  return sizes;
}

// Returns the memory format of the output. The CPU's convolutions of images
// write channels-last if the input or the weight is channels-last. Convolutions
// of volumes do so only in oneDNN, which does not support doubles.
MemoryFormat Format(const ResultMeta& input, const ResultMeta& weight,
                    bool in_onednn) {
  const MemoryFormat formats[] = {SuggestFormat(input), SuggestFormat(weight)};
  for (MemoryFormat format : formats) {
    if (format == MemoryFormat::ChannelsLast) return format;
    if (format == MemoryFormat::ChannelsLast3d && in_onednn) return format;
  }
  return MemoryFormat::Contiguous;
}

bool AllOnes(const DimVector& values) {
  return std::all_of(values.begin(), values.end(),
                     [](int64_t value) { return value == 1; });
}

enum class Threads { kOne, kSeveral };

// Returns whether oneDNN computes the convolution. The CPU avoids oneDNN for
// small convolutions of a single sample and, with one thread, for convolutions
// that are only matrix products, because these are faster without it.
bool RunsInOneDnn(const Convolution& conv, Threads threads) {
  const auto& input = conv.input.sizes;
  const auto& weight = conv.weight.sizes;
  if (conv.transposed) {
    for (int64_t i = 0; i < conv.spatial_rank(); ++i) {
      if (conv.output_padding[i] >= conv.stride[i]) return false;
    }
    if (conv.groups > 1 && input[1] == conv.groups) return false;
  }
  if (conv.input.dtype == ScalarType::BFloat16 ||
      conv.input.dtype == ScalarType::Half) {
    return true;
  }
  if (conv.input.dtype != ScalarType::Float) return false;
  if (threads == Threads::kOne && input[0] < 16 && weight.end()[-1] == 1 &&
      (conv.spatial_rank() == 1 || weight.end()[-2] == 1) &&
      AllOnes(conv.stride) && AllOnes(conv.dilation)) {
    return false;
  }
  return conv.groups > 1 || input[0] > 1 ||
         (conv.spatial_rank() > 1 && weight.end()[-1] > 3 &&
          weight.end()[-2] > 3) ||
         c10::multiply_integers(
             input.begin(), input.begin() + std::min<size_t>(input.size(), 4)) >
             20480;
}

// Treats a convolution of sequences as one of images of height 1.
ResultMeta AsImage(const ResultMeta& sequence) {
  return Unsqueeze(sequence, 2);
}

MemoryFormat FormatOf(const Convolution& conv, Threads threads) {
  if (conv.spatial_rank() != 1) {
    return Format(conv.input, conv.weight,
                  conv.spatial_rank() == 3 && RunsInOneDnn(conv, threads));
  }
  const ResultMeta input = IsContiguous(conv.input)
                               ? conv.input
                               : Contiguous(conv.input.dtype, conv.input.sizes);
  return Format(AsImage(input), AsImage(conv.weight),
                /*in_onednn=*/false);
}

ResultMeta InSpatialFormat(ScalarType dtype, const DimVector& sizes,
                           MemoryFormat format) {
  if (sizes.size() != 3) return InFormat(dtype, sizes, format);
  DimVector image = sizes;
  image.insert(image.begin() + 2, 1);
  return Squeeze(InFormat(dtype, image, format), 2);
}

// Returns the gradient of the weight. If the weight is contiguous in the
// convolution's format, a kernel outside of oneDNN writes the gradient in the
// format that the weight's strides suggest, and otherwise in the convolution's
// format.
ResultMeta WeightGradient(const Convolution& conv, Threads threads) {
  MemoryFormat format = FormatOf(conv, threads);
  const bool sequence = conv.spatial_rank() == 1;
  const ResultMeta weight = sequence ? AsImage(conv.weight) : conv.weight;
  if (!RunsInOneDnn(conv, threads) && IsContiguous(weight, format)) {
    format = SuggestFormat(weight);
  }
  return InSpatialFormat(weight.dtype, conv.weight.sizes, format);
}

// Ignores the strides of dimensions of size 1.
bool SameLayout(const ResultMeta& a, const ResultMeta& b) {
  if (NumElements(a) == 0) return true;
  for (size_t d = 0; d < a.sizes.size(); ++d) {
    if (a.sizes[d] > 1 && a.strides[d] != b.strides[d]) return false;
  }
  return true;
}

// Returns the result of `layout` if it is the same for every number of threads.
// Otherwise returns an unknown layout, because only the worker knows its number
// of threads. Without oneDNN, kernels differ in what they make of channels-last
// operands.
template <typename Layout>
ResultMeta ForAnyThreads(Layout layout) {
  ResultMeta result = layout(Threads::kSeveral);
  result.known =
      SameLayout(result, layout(Threads::kOne)) &&
      (at::globalContext().userEnabledMkldnn() || IsContiguous(result));
  return result;
}

// Returns new memory of `sizes` in the convolution's format.
ResultMeta InFormatOf(const Convolution& conv, const DimVector& sizes) {
  return ForAnyThreads([&](Threads threads) {
    return InSpatialFormat(conv.input.dtype, sizes, FormatOf(conv, threads));
  });
}

ResultMeta Output(const Convolution& conv) {
  Check(conv);
  return InFormatOf(conv, OutputSizes(conv));
}

Convolution Read(const CallArguments& args) {
  Convolution conv;
  conv.input = Describe(args.Tensor(0));
  conv.weight = Describe(args.Tensor(1));
  if (args.Has(2)) conv.bias = Describe(args.Tensor(2));
  TORCH_CHECK(conv.weight.sizes.size() >= 3,
              "weight should have at least three dimensions");
  return conv;
}

Results ConvolutionRule(const CallArguments& args) {
  Convolution conv = Read(args);
  const int64_t rank = conv.spatial_rank();
  conv.stride = Expanded(args.Integers(3), rank, "stride");
  conv.padding = Expanded(args.Integers(4), rank, "padding");
  conv.dilation = Expanded(args.Integers(5), rank, "dilation");
  conv.transposed = args.Boolean(6);
  conv.output_padding = Expanded(args.Integers(7), rank, "output_padding");
  conv.groups = args.Integer(8);
  return {Output(conv)};
}

// Returns the output of a whole convolution, whose input may lack the batch
// dimension.
Results Batched(Convolution conv, const char* op) {
  const int64_t rank = conv.spatial_rank();
  const int64_t dims = conv.input.sizes.size();
  TORCH_CHECK(dims == rank + 2 || dims == rank + 1, "Expected ", rank + 1,
              "D (unbatched) or ", rank + 2, "D (batched) input to ", op,
              ", but got input of size: ", c10::IntArrayRef(conv.input.sizes));
  if (dims == rank + 2) return {Output(conv)};
  conv.input = Unsqueeze(conv.input, 0);
  return {Squeeze(Output(conv), 0)};
}

void CheckRank(const Convolution& conv, int64_t rank) {
  TORCH_CHECK(conv.spatial_rank() == rank, "weight should have ", rank + 2,
              " dimensions, but got ", conv.weight.sizes.size());
}

// The rule for conv1d, conv2d and conv3d.
Results WholeConvolution(const CallArguments& args, int64_t rank) {
  Convolution conv = Read(args);
  CheckRank(conv, rank);
  conv.stride = Expanded(args.Integers(3), rank, "stride");
  conv.padding = Expanded(args.Integers(4), rank, "padding");
  conv.dilation = Expanded(args.Integers(5), rank, "dilation");
  conv.output_padding.resize(rank, 0);
  conv.groups = args.Integer(6);
  return Batched(std::move(conv), "convolution");
}

// The rule for convolutions whose padding is named.
Results NamedPadding(const CallArguments& args, int64_t rank) {
  Convolution conv = Read(args);
  CheckRank(conv, rank);
  conv.stride = Expanded(args.Integers(3), rank, "stride");
  conv.dilation = Expanded(args.Integers(5), rank, "dilation");
  conv.output_padding.resize(rank, 0);
  conv.padding.resize(rank, 0);
  conv.groups = args.Integer(6);
  const std::string padding = args.Text(4);
  TORCH_CHECK(padding == "same" || padding == "valid",
              "Invalid padding string: '", padding, "'");
  if (padding == "valid") return Batched(std::move(conv), "convolution");

  // If the total padding is odd, the input is first padded by one more element
  // at its end.
  const bool batched =
      static_cast<int64_t>(conv.input.sizes.size()) == rank + 2;
  if (!batched) conv.input = Unsqueeze(conv.input, 0);
  TORCH_CHECK(static_cast<int64_t>(conv.input.sizes.size()) == rank + 2,
              "convolution: expected a batched or an unbatched input");
  bool padded = false;
  DimVector sizes = conv.input.sizes;
  for (int64_t i = 0; i < rank; ++i) {
    TORCH_CHECK(conv.stride[i] == 1,
                "padding='same' is not supported for strided convolutions");
    const int64_t total = conv.dilation[i] * (conv.weight.sizes[i + 2] - 1);
    conv.padding[i] = total / 2;
    sizes[i + 2] += total % 2;
    padded |= total % 2 != 0;
  }
  if (padded) {
    conv.input = InFormat(conv.input.dtype, sizes, SuggestFormat(conv.input));
  }
  const ResultMeta output = Output(conv);
  return {batched ? output : Squeeze(output, 0)};
}

// The rule for conv_transpose1d, conv_transpose2d and conv_transpose3d.
Results WholeTransposed(const CallArguments& args, int64_t rank) {
  Convolution conv = Read(args);
  CheckRank(conv, rank);
  conv.transposed = true;
  conv.stride = Expanded(args.Integers(3), rank, "stride");
  conv.padding = Expanded(args.Integers(4), rank, "padding");
  conv.output_padding = Expanded(args.Integers(5), rank, "output_padding");
  conv.groups = args.Integer(6);
  conv.dilation = Expanded(args.Integers(7), rank, "dilation");
  return Batched(std::move(conv), "transposed convolution");
}

// Returns (grad_input, grad_weight, grad_bias). A gradient that the call does
// not ask for is undefined.
Results ConvolutionBackward(const CallArguments& args) {
  const at::Tensor& grad = args.Tensor(0);
  Convolution conv;
  conv.input = Describe(args.Tensor(1));
  conv.weight = Describe(args.Tensor(2));
  const int64_t rank = conv.spatial_rank();
  conv.stride = Expanded(args.Integers(4), rank, "stride");
  conv.dilation = Expanded(args.Integers(6), rank, "dilation");
  conv.transposed = args.Boolean(7);
  conv.output_padding = Expanded(args.Integers(8), rank, "output_padding");
  conv.groups = args.Integer(9);
  const std::vector<bool> mask = args.Booleans(10);
  Results results(3);
  for (size_t i = 0; i < 3; ++i) results[i].defined = mask[i];
  if (mask[0]) results[0] = InFormatOf(conv, conv.input.sizes);
  if (mask[1]) {
    results[1] = ForAnyThreads(
        [&](Threads threads) { return WeightGradient(conv, threads); });
  }
  if (mask[2]) results[2] = Contiguous(grad.scalar_type(), {grad.size(1)});
  return results;
}

}  // namespace

void AddConvolutionRules(RuleTable* table) {
  table->Add({"aten::convolution", "aten::_convolution"}, ConvolutionRule);
  table->Add({"aten::convolution_backward"}, ConvolutionBackward);
  const std::string digits[] = {"1", "2", "3"};
  for (int64_t rank = 1; rank <= 3; ++rank) {
    const std::string d = digits[rank - 1] + "d";
    table->Add({"aten::conv" + d}, [rank](const CallArguments& args) {
      return WholeConvolution(args, rank);
    });
    table->Add(
        {"aten::conv" + d + ".padding"},
        [rank](const CallArguments& args) { return NamedPadding(args, rank); });
    table->Add({"aten::conv_transpose" + d + (rank == 1 ? "" : ".input")},
               [rank](const CallArguments& args) {
                 return WholeTransposed(args, rank);
               });
  }
}

}  // namespace djinn
