// Rules for windows over images and volumes: pooling, padding, sampling and
// columns.
#include <string>

#include "client_lib/shape/rule_table.h"
#include "client_lib/shape/stride_inference.h"
#include "client_lib/shape/type_promotion.h"

namespace djinn {
namespace {

using c10::DimVector;
using c10::MemoryFormat;
using c10::ScalarType;

// Replaces the last `rank` sizes by the output size.
Results AdaptiveAveragePool(const CallArguments& args, int64_t rank) {
  const at::Tensor& self = args.Tensor(0);
  const DimVector wanted = args.Integers(1);
  TORCH_CHECK(static_cast<int64_t>(wanted.size()) == rank,
              "adaptive_avg_pool: output_size must have ", rank, " elements");
  TORCH_CHECK(self.dim() == rank + 1 || self.dim() == rank + 2,
              "adaptive_avg_pool: Expected ", rank + 1, "D or ", rank + 2,
              "D tensor, but got ", self.sizes());
  for (int64_t i = self.dim() - rank; i < self.dim(); ++i) {
    TORCH_CHECK(self.size(i) > 0,
                "adaptive_avg_pool: Expected input to have non-zero size for "
                "non-batch dimensions, but input has sizes ",
                self.sizes());
  }
  CheckFloating("adaptive_avg_pool", self);
  DimVector sizes(self.sizes().slice(0, self.dim() - rank));
  sizes.append(wanted.begin(), wanted.end());
  // Only images keep their memory format.
  return {InFormat(
      self.scalar_type(), sizes,
      rank == 2 ? self.suggest_memory_format() : MemoryFormat::Contiguous)};
}

Results AdaptiveAveragePool2d(const CallArguments& args) {
  return AdaptiveAveragePool(args, 2);
}

Results AdaptiveAveragePool3d(const CallArguments& args) {
  return AdaptiveAveragePool(args, 3);
}

// The gradient has the format of the input, which is the second argument.
Results GradientInSelfFormat(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(1);
  return {
      InFormat(self.scalar_type(), self.sizes(), self.suggest_memory_format())};
}

// Checks that the gradient has as many images and channels as the input. The
// kernels do not check it, and would read and write out of bounds.
void CheckPooledGradient(const CallArguments& args, int64_t rank) {
  const at::Tensor& grad = args.Tensor(0);
  const at::Tensor& self = args.Tensor(1);
  for (int64_t i = 1; i < grad.dim(); ++i) {
    TORCH_CHECK(grad.size(i) > 0, "adaptive_avg_pool", rank,
                "d_backward(): Expected grad_output to have non-zero size for "
                "non-batch dimensions, but grad_output has sizes ",
                grad.sizes(), " with dimension ", i, " being empty");
  }
  TORCH_CHECK(grad.dim() == self.dim(), "adaptive_avg_pool", rank,
              "d_backward_out_cpu_template: Expected dimensions ", self.dim(),
              rank == 2 ? " for `grad_output`" : " for `gradOutput_`",
              " but got dimensions ", grad.dim());
  TORCH_CHECK(self.dim() > rank && grad.sizes().slice(0, grad.dim() - rank) ==
                                       self.sizes().slice(0, self.dim() - rank),
              "adaptive_avg_pool", rank, "d_backward(): a gradient of sizes ",
              grad.sizes(), " is none of an input of sizes ", self.sizes());
}

Results AdaptiveAveragePool2dBackward(const CallArguments& args) {
  CheckPooledGradient(args, 2);
  return GradientInSelfFormat(args);
}

Results ContiguousGradient(const CallArguments& args) {
  return {Contiguous(args.Tensor(1).scalar_type(), args.Tensor(1).sizes())};
}

Results AdaptiveAveragePool3dBackward(const CallArguments& args) {
  CheckPooledGradient(args, 3);
  return ContiguousGradient(args);
}

// Returns a parameter for each dimension. The call may have one parameter for
// all dimensions, one for each, or none; if it has none, each is `absent`.
DimVector PerDimension(const CallArguments& args, size_t index, size_t rank,
                       const DimVector& absent = {}) {
  DimVector values = args.Integers(index);
  if (values.empty()) values = absent;
  if (values.size() == 1) values.resize(rank, values[0]);
  TORCH_CHECK(values.size() == rank, "pooling: expected ", rank,
              " values for each parameter, but got ", values.size());
  return values;
}

int64_t PooledSize(int64_t size, int64_t kernel, int64_t padding,
                   int64_t stride, int64_t dilation, bool ceil_mode) {
  TORCH_CHECK(stride > 0, "stride should not be zero");
  TORCH_CHECK(padding >= 0 && padding <= ((kernel - 1) * dilation + 1) / 2,
              "pad should be at most half of effective kernel size");
  const int64_t span = size + 2 * padding - dilation * (kernel - 1) - 1 +
                       (ceil_mode ? stride - 1 : 0);
  int64_t pooled = span / stride - (span % stride != 0 && span < 0 ? 1 : 0) + 1;
  // The last window must start inside the input or its left padding.
  if (ceil_mode && (pooled - 1) * stride >= size + padding) --pooled;
  TORCH_CHECK(pooled > 0, "max_pool: Output size is too small");
  return pooled;
}

Results MaxPool3d(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  TORCH_CHECK(self.dim() == 4 || self.dim() == 5,
              "max_pool3d: expected a 4-D or 5-D input, but got ",
              self.sizes());
  TORCH_CHECK(self.suggest_memory_format() != MemoryFormat::ChannelsLast,
              "Unsupported memory format. Supports only ChannelsLast3d, "
              "Contiguous");
  const DimVector kernel = PerDimension(args, 1, 3);
  const DimVector stride = PerDimension(args, 2, 3, kernel);
  const DimVector padding = PerDimension(args, 3, 3);
  const DimVector dilation = PerDimension(args, 4, 3);
  DimVector sizes(self.sizes());
  for (int64_t i = 0; i < 3; ++i) {
    int64_t& size = sizes[self.dim() - 3 + i];
    size = PooledSize(size, kernel[i], padding[i], stride[i], dilation[i],
                      args.Boolean(5));
  }
  const MemoryFormat format =
      self.dim() == 5 ? self.suggest_memory_format() : MemoryFormat::Contiguous;
  return {InFormat(self.scalar_type(), sizes, format),
          InFormat(ScalarType::Long, sizes, format)};
}

// Replaces the pooled dimensions by the output size.
Results MaxUnpool(const CallArguments& args, int64_t rank) {
  const at::Tensor& self = args.Tensor(0);
  const at::Tensor& indices = args.Tensor(1);
  const DimVector wanted = args.Integers(2);
  TORCH_CHECK(indices.scalar_type() == ScalarType::Long,
              "elements in indices should be type int64");
  TORCH_CHECK(static_cast<int64_t>(wanted.size()) == rank,
              "max_unpool: There should be exactly ", rank,
              " elements in output_size");
  TORCH_CHECK(self.dim() == rank + 1 || self.dim() == rank + 2,
              "max_unpool: wrong number of dimensions of the input");
  TORCH_CHECK(self.sizes() == indices.sizes(),
              "Expected shape of indices to be same as that of the input");
  DimVector sizes(self.sizes().slice(0, self.dim() - rank));
  sizes.append(wanted.begin(), wanted.end());
  return {InFormat(self.scalar_type(), sizes,
                   rank == 2 && self.dim() == 4 ? self.suggest_memory_format()
                                                : MemoryFormat::Contiguous)};
}

// ---- Sampling and padding ----

Results GridSampler(const CallArguments& args, int64_t rank) {
  const at::Tensor& input = args.Tensor(0);
  const at::Tensor& grid = args.Tensor(1);
  TORCH_CHECK(input.dim() == rank + 2 && grid.dim() == rank + 2,
              "grid_sampler(): expected an input and a grid of ", rank + 2,
              " dimensions");
  TORCH_CHECK(input.size(0) == grid.size(0) && grid.size(-1) == rank,
              "grid_sampler(): input and grid do not fit");
  CheckSameType("grid_sampler", {input, grid});
  DimVector sizes = {input.size(0), input.size(1)};
  for (int64_t i = 1; i <= rank; ++i) sizes.push_back(grid.size(i));
  return {Contiguous(input.scalar_type(), sizes)};
}

Results GridSamplerBackward(const CallArguments& args) {
  const at::Tensor& input = args.Tensor(1);
  const at::Tensor& grid = args.Tensor(2);
  ResultMeta for_input = Contiguous(input.scalar_type(), input.sizes());
  for_input.defined = args.Booleans(6)[0];
  return {for_input, Contiguous(grid.scalar_type(), grid.sizes())};
}

Results ReflectionPad2d(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  const DimVector padding = args.Integers(1);
  TORCH_CHECK(self.dim() == 3 || self.dim() == 4,
              "reflection_pad2d: Expected 3D or 4D input");
  TORCH_CHECK(padding.size() == 4, "padding size is expected to be 4");
  DimVector sizes(self.sizes());
  for (int64_t i = 0; i < 2; ++i) {
    int64_t& size = sizes[self.dim() - 1 - i];
    for (int64_t pad : {padding[2 * i], padding[2 * i + 1]}) {
      TORCH_CHECK(pad < self.size(-1 - i),
                  "Padding size should be less than the corresponding input "
                  "dimension");
      size += pad;
    }
    TORCH_CHECK(size >= 1, "reflection_pad2d: the output is too small");
  }
  return {InFormat(self.scalar_type(), sizes,
                   self.dim() == 4 ? self.suggest_memory_format()
                                   : MemoryFormat::Contiguous)};
}

// Returns a channels-last result for channels-last images or volumes, as only
// the CPU's kernels do.
Results PadByElements(const CallArguments& args, const std::string& name,
                      int64_t rank, bool reflects) {
  const at::Tensor& self = args.Tensor(0);
  const DimVector padding = args.Integers(1);
  TORCH_CHECK(self.dim() == rank + 1 || self.dim() == rank + 2, name,
              ": expected ", rank + 1, " or ", rank + 2, " dimensions");
  TORCH_CHECK(static_cast<int64_t>(padding.size()) == 2 * rank, name,
              ": padding size is expected to be ", 2 * rank);
  for (int64_t i = 1; i <= rank + 1; ++i) {
    TORCH_CHECK(self.size(-i) != 0, name,
                ": expected non-zero dimensions, but got: ", self.sizes());
  }
  DimVector sizes(self.sizes());
  for (int64_t i = 0; i < rank; ++i) {
    int64_t& size = sizes[self.dim() - 1 - i];
    for (const int64_t pad : {padding[2 * i], padding[2 * i + 1]}) {
      TORCH_CHECK(!reflects || pad < self.size(-1 - i),
                  "Padding size should be less than the corresponding input "
                  "dimension");
      size += pad;
    }
    TORCH_CHECK(size >= 1, name, ": the output is too small");
  }
  const bool keeps = self.dim() == rank + 2 && self.numel() != 0;
  return {InFormat(
      self.scalar_type(), sizes,
      keeps ? self.suggest_memory_format() : MemoryFormat::Contiguous)};
}

// ---- Columns ----

int64_t WindowCount(int64_t size, int64_t kernel, int64_t dilation,
                    int64_t padding, int64_t stride) {
  TORCH_CHECK(kernel > 0 && dilation > 0 && stride > 0 && padding >= 0,
              "im2col: kernel, dilation and stride should be positive");
  return (size + 2 * padding - (dilation * (kernel - 1) + 1)) / stride + 1;
}

Results ImageToColumns(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  TORCH_CHECK(self.dim() == 3 || self.dim() == 4,
              "im2col: Expected 3D or 4D input");
  const DimVector kernel = PerDimension(args, 1, 2);
  const DimVector dilation = PerDimension(args, 2, 2);
  const DimVector padding = PerDimension(args, 3, 2);
  const DimVector stride = PerDimension(args, 4, 2);
  int64_t windows = 1;
  for (int64_t i = 0; i < 2; ++i) {
    const int64_t count = WindowCount(self.size(i - 2), kernel[i], dilation[i],
                                      padding[i], stride[i]);
    TORCH_CHECK(count >= 1, "im2col: the array of sliding blocks is empty");
    windows *= count;
  }
  DimVector sizes(self.sizes().slice(0, self.dim() - 3));
  sizes.push_back(self.size(-3) * kernel[0] * kernel[1]);
  sizes.push_back(windows);
  return {Contiguous(self.scalar_type(), sizes)};
}

Results ColumnsToImage(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  TORCH_CHECK(self.dim() == 2 || self.dim() == 3,
              "col2im: Expected 2D or 3D input");
  const DimVector output = args.Integers(1);
  const DimVector kernel = PerDimension(args, 2, 2);
  const DimVector dilation = PerDimension(args, 3, 2);
  const DimVector padding = PerDimension(args, 4, 2);
  const DimVector stride = PerDimension(args, 5, 2);
  TORCH_CHECK(output.size() == 2,
              "col2im: It is expected output_size equals 2");
  const int64_t area = kernel[0] * kernel[1];
  TORCH_CHECK(area > 0 && self.size(-2) % area == 0,
              "Expected size of input's first non-batch dimension to be "
              "divisible by the product of kernel_size");
  int64_t windows = 1;
  for (int64_t i = 0; i < 2; ++i) {
    windows *=
        WindowCount(output[i], kernel[i], dilation[i], padding[i], stride[i]);
  }
  TORCH_CHECK(self.size(-1) == windows, "col2im: expected ", windows,
              " sliding blocks, but got ", self.size(-1));
  DimVector sizes(self.sizes().slice(0, self.dim() - 2));
  sizes.push_back(self.size(-2) / area);
  sizes.append(output.begin(), output.end());
  return {Contiguous(self.scalar_type(), sizes)};
}

Results ChannelShuffle(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  const int64_t groups = args.Integer(1);
  TORCH_CHECK(self.dim() > 2, "channel_shuffle expects input with > 2 dims");
  TORCH_CHECK(groups > 0 && self.size(1) % groups == 0,
              "Number of channels must be divisible by groups");
  return {
      InFormat(self.scalar_type(), self.sizes(), self.suggest_memory_format())};
}

// PyTorch's own function rejects what does not divide.
Results PixelShuffle(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  const int64_t factor = args.Integer(1);
  if (self.dim() < 3 || factor < 1 || factor > self.size(-3) ||
      self.size(-3) % (factor * factor) != 0) {
    return {};
  }
  c10::DimVector sizes(self.sizes());
  const size_t channels = sizes.size() - 3;
  sizes[channels] /= factor * factor;
  sizes[channels + 1] *= factor;
  sizes[channels + 2] *= factor;
  return {InFormat(self.scalar_type(), sizes, self.suggest_memory_format())};
}

Results PixelUnshuffle(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  const int64_t factor = args.Integer(1);
  if (self.dim() < 3 || factor < 1 || factor > self.size(-1) ||
      self.size(-2) % factor != 0 || self.size(-1) % factor != 0) {
    return {};
  }
  c10::DimVector sizes(self.sizes());
  const size_t channels = sizes.size() - 3;
  sizes[channels] *= factor * factor;
  sizes[channels + 1] /= factor;
  sizes[channels + 2] /= factor;
  return {InFormat(self.scalar_type(), sizes, self.suggest_memory_format())};
}

}  // namespace

void AddPoolingRules(RuleTable* table) {
  table->Add({"aten::_adaptive_avg_pool2d"}, AdaptiveAveragePool2d);
  table->Add({"aten::_adaptive_avg_pool3d"}, AdaptiveAveragePool3d);
  table->Add({"aten::_adaptive_avg_pool2d_backward"},
             AdaptiveAveragePool2dBackward);
  table->Add({"aten::_adaptive_avg_pool3d_backward"},
             AdaptiveAveragePool3dBackward);
  table->Add(
      {"aten::max_pool3d_with_indices_backward",
       "aten::reflection_pad2d_backward", "aten::replication_pad2d_backward",
       "aten::replication_pad3d_backward"},
      GradientInSelfFormat);
  table->Add({"aten::fractional_max_pool3d_backward"}, ContiguousGradient);
  table->Add({"aten::max_pool3d_with_indices"}, MaxPool3d);
  table->Add({"aten::max_unpool2d"},
             [](const CallArguments& args) { return MaxUnpool(args, 2); });
  table->Add({"aten::max_unpool3d"},
             [](const CallArguments& args) { return MaxUnpool(args, 3); });
  table->Add({"aten::grid_sampler_2d"},
             [](const CallArguments& args) { return GridSampler(args, 2); });
  table->Add({"aten::grid_sampler_3d"},
             [](const CallArguments& args) { return GridSampler(args, 3); });
  table->Add(
      {"aten::grid_sampler_2d_backward", "aten::grid_sampler_3d_backward"},
      GridSamplerBackward);
  table->Add({"aten::reflection_pad2d"}, ReflectionPad2d);
  table->Add({"aten::reflection_pad3d"}, [](const CallArguments& args) {
    return PadByElements(args, "reflection_pad3d", 3, /*reflects=*/true);
  });
  for (const int64_t rank : {2, 3}) {
    const std::string name = "replication_pad" + std::to_string(rank) + "d";
    table->Add({"aten::" + name}, [name, rank](const CallArguments& args) {
      return PadByElements(args, name, rank, /*reflects=*/false);
    });
  }
  table->Add({"aten::im2col"}, ImageToColumns);
  table->Add({"aten::col2im"}, ColumnsToImage);
  table->Add({"aten::channel_shuffle", "aten::native_channel_shuffle"},
             ChannelShuffle);
  table->Add({"aten::pixel_shuffle"}, PixelShuffle);
  table->Add({"aten::pixel_unshuffle"}, PixelUnshuffle);
}

}  // namespace djinn
