// Rules for batch, layer and group normalization, whole and in parts, and their
// gradients.
#include <vector>

#include "client_lib/shape/rule_table.h"
#include "client_lib/shape/stride_inference.h"
#include "client_lib/shape/type_promotion.h"

namespace djinn {
namespace {

using c10::DimVector;
using c10::MemoryFormat;
using c10::ScalarType;

ResultMeta Undefined() {
  ResultMeta meta;
  meta.defined = false;
  return meta;
}

ResultMeta If(bool wanted, ResultMeta meta) {
  return wanted ? std::move(meta) : Undefined();
}

// Returns the argument, or an undefined tensor.
at::Tensor Optional(const CallArguments& args, size_t index) {
  return args.Has(index) ? args.Tensor(index) : at::Tensor();
}

bool IsReduced(const at::Tensor& tensor) {
  return tensor.scalar_type() == ScalarType::BFloat16 ||
         tensor.scalar_type() == ScalarType::Half;
}

// Returns the dtype of statistics. Half-precision inputs may have float
// parameters.
ScalarType StatisticsType(const at::Tensor& input,
                          c10::ArrayRef<at::Tensor> parameters) {
  CheckFloating("normalization", input);
  ScalarType result = input.scalar_type();
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.defined()) continue;
    if (parameter.scalar_type() == input.scalar_type()) continue;
    TORCH_CHECK(
        IsReduced(input) && parameter.scalar_type() == ScalarType::Float,
        "mixed dtype (CPU): expect parameter to have scalar type of Float");
    result = ScalarType::Float;
  }
  return result;
}

// ---- Layer normalisation ----

// Checks the arguments and returns the first normalized dimension.
int64_t CheckLayerNorm(const at::Tensor& input, const DimVector& normalized,
                       c10::ArrayRef<at::Tensor> parameters) {
  const int64_t axis = input.dim() - static_cast<int64_t>(normalized.size());
  TORCH_CHECK(!normalized.empty(),
              "Expected normalized_shape to be at least 1-dimensional");
  TORCH_CHECK(axis >= 0 && input.sizes().slice(axis) == normalized,
              "Given normalized_shape=", c10::IntArrayRef(normalized),
              ", expected input with shape ending in it, but got input of "
              "size ",
              input.sizes());
  for (const at::Tensor& parameter : parameters) {
    TORCH_CHECK(!parameter.defined() || parameter.sizes() == normalized,
                "Expected weight and bias to be of the same shape as "
                "normalized_shape");
  }
  return axis;
}

Results NativeLayerNorm(const CallArguments& args) {
  const at::Tensor& input = args.Tensor(0);
  const at::Tensor weight = Optional(args, 2), bias = Optional(args, 3);
  const int64_t axis = CheckLayerNorm(input, args.Integers(1), {weight, bias});
  DimVector statistics(input.dim(), 1);
  for (int64_t i = 0; i < axis; ++i) statistics[i] = input.size(i);
  const ResultMeta statistic =
      Contiguous(StatisticsType(input, {weight, bias}), statistics);
  return {Contiguous(input.scalar_type(), input.sizes()), statistic, statistic};
}

Results LayerNorm(const CallArguments& args) {
  return {NativeLayerNorm(args)[0]};
}

Results NativeLayerNormBackward(const CallArguments& args) {
  const at::Tensor& input = args.Tensor(1);
  const at::Tensor weight = Optional(args, 5), bias = Optional(args, 6);
  const DimVector normalized = args.Integers(2);
  const std::vector<bool> mask = args.Booleans(7);
  auto type = [&](const at::Tensor& parameter) {
    return parameter.defined() ? parameter.scalar_type() : input.scalar_type();
  };
  return {If(mask[0], Contiguous(input.scalar_type(), input.sizes())),
          If(mask[1], Contiguous(type(weight), normalized)),
          If(mask[2], Contiguous(type(weight), normalized))};
}

// ---- Group normalisation ----

void CheckGroupNorm(const at::Tensor& input, int64_t channels, int64_t groups,
                    c10::ArrayRef<at::Tensor> parameters) {
  TORCH_CHECK(groups > 0, "Expected num groups to be greater than 0, got ",
              groups);
  TORCH_CHECK(channels % groups == 0,
              "Expected number of channels in input to be divisible by "
              "num_groups, but got input of shape ",
              input.sizes(), " and num_groups=", groups);
  for (const at::Tensor& parameter : parameters) {
    TORCH_CHECK(!parameter.defined() ||
                    (parameter.dim() == 1 && parameter.numel() == channels),
                "Expected weight and bias to be vectors of size equal to the "
                "number of channels in input");
  }
}

Results NativeGroupNorm(const CallArguments& args) {
  const at::Tensor& input = args.Tensor(0);
  const at::Tensor weight = Optional(args, 1), bias = Optional(args, 2);
  const int64_t samples = args.Integer(3), channels = args.Integer(4);
  const int64_t groups = args.Integer(6);
  CheckGroupNorm(input, channels, groups, {weight, bias});
  const MemoryFormat format = input.suggest_memory_format();
  TORCH_CHECK(input.is_contiguous(format));
  const ResultMeta statistic =
      Contiguous(StatisticsType(input, {weight, bias}), {samples, groups});
  return {InFormat(input.scalar_type(), input.sizes(), format), statistic,
          statistic};
}

Results GroupNorm(const CallArguments& args) {
  const at::Tensor& input = args.Tensor(0);
  const at::Tensor weight = Optional(args, 2), bias = Optional(args, 3);
  TORCH_CHECK(input.dim() >= 2, "Expected at least 2 dimensions for input");
  CheckGroupNorm(input, input.size(1), args.Integer(1), {weight, bias});
  StatisticsType(input, {weight, bias});
  return {InFormat(input.scalar_type(), input.sizes(),
                   input.suggest_memory_format())};
}

Results NativeGroupNormBackward(const CallArguments& args) {
  const at::Tensor& input = args.Tensor(1);
  const at::Tensor weight = Optional(args, 4);
  const int64_t channels = args.Integer(6);
  const std::vector<bool> mask = args.Booleans(9);
  const ScalarType parameter =
      weight.defined() ? weight.scalar_type() : input.scalar_type();
  return {If(mask[0], InFormat(input.scalar_type(), input.sizes(),
                               input.suggest_memory_format())),
          If(mask[1], Contiguous(parameter, {channels})),
          If(mask[2], Contiguous(parameter, {channels}))};
}

// ---- Batch normalisation ----

// Returns the output in the format that the kernel writes: the input's own
// format if the input is contiguous in one, otherwise the format that its
// strides suggest.
ResultMeta BatchNormOutput(const at::Tensor& input) {
  MemoryFormat format = input.suggest_memory_format();
  for (const MemoryFormat own :
       {MemoryFormat::ChannelsLast3d, MemoryFormat::ChannelsLast,
        MemoryFormat::Contiguous}) {
    if (input.is_contiguous(own)) format = own;
  }
  return InFormat(input.scalar_type(), input.sizes(), format);
}

struct BatchNorm {
  at::Tensor input, weight, bias, mean, variance;
  bool training = false;

  ScalarType Statistics() const {
    return StatisticsType(input, {weight, bias, mean, variance});
  }
};

void CheckBatchNorm(const BatchNorm& norm) {
  TORCH_CHECK(norm.input.dim() >= 2,
              "batch_norm: expected at least 2 dimensions for input");
  TORCH_CHECK(
      norm.training || (norm.mean.defined() && norm.variance.defined()),
      "running_mean and running_var must be defined in evaluation mode");
  for (const at::Tensor& parameter :
       {norm.weight, norm.bias, norm.mean, norm.variance}) {
    TORCH_CHECK(!parameter.defined() || parameter.numel() == norm.input.size(1),
                "batch_norm: parameters should contain ", norm.input.size(1),
                " elements not ", parameter.defined() ? parameter.numel() : 0);
  }
}

// Returns (output, save_mean, save_invstd). Evaluation saves nothing.
Results BatchNormResults(const BatchNorm& norm) {
  const ScalarType type = norm.Statistics();
  const int64_t channels = norm.training ? norm.input.size(1) : 0;
  const ResultMeta saved = Contiguous(type, {channels});
  return {BatchNormOutput(norm.input), saved, saved};
}

BatchNorm ReadBatchNorm(const CallArguments& args) {
  BatchNorm norm;
  norm.input = args.Tensor(0);
  norm.weight = Optional(args, 1);
  norm.bias = Optional(args, 2);
  norm.mean = Optional(args, 3);
  norm.variance = Optional(args, 4);
  norm.training = args.Boolean(5);
  return norm;
}

Results NativeBatchNorm(const CallArguments& args) {
  return BatchNormResults(ReadBatchNorm(args));
}

// The overload without running statistics.
Results NativeBatchNormAlone(const CallArguments& args) {
  BatchNorm norm;
  norm.input = args.Tensor(0);
  norm.weight = Optional(args, 1);
  norm.bias = Optional(args, 2);
  norm.training = args.Boolean(3);
  return BatchNormResults(norm);
}

Results NativeBatchNormEvaluating(const CallArguments& args) {
  BatchNorm norm;
  norm.input = args.Tensor(0);
  norm.weight = Optional(args, 1);
  norm.bias = Optional(args, 2);
  norm.mean = args.Tensor(3);
  norm.variance = args.Tensor(4);
  return BatchNormResults(norm);
}

// The overload that also returns the updated running statistics.
Results NativeBatchNormFunctional(const CallArguments& args) {
  Results results = NativeBatchNorm(args);
  results.push_back(EmptyLike(args.Tensor(3).scalar_type(), args.Tensor(3)));
  results.push_back(EmptyLike(args.Tensor(4).scalar_type(), args.Tensor(4)));
  return results;
}

Results WholeBatchNorm(const CallArguments& args) {
  const BatchNorm norm = ReadBatchNorm(args);
  if (norm.input.numel() > 0) {
    CheckBatchNorm(norm);
    return {BatchNormResults(norm)[0]};
  }
  // PyTorch does not check an empty input. The result is a copy, times
  // weight[0], plus bias[0].
  ResultMeta result = EmptyLike(norm.input.scalar_type(), norm.input);
  for (const at::Tensor& parameter : {norm.weight, norm.bias}) {
    if (parameter.defined()) {
      result = Elementwise(result.dtype, {result, ResultMeta()});
    }
  }
  return {result};
}

Results BatchNormUpdateStats(const CallArguments& args) {
  const at::Tensor& input = args.Tensor(0);
  const ResultMeta saved =
      Contiguous(StatisticsType(input, {Optional(args, 1), Optional(args, 2)}),
                 {input.size(1)});
  return {saved, saved};
}

Results BatchNormWithUpdate(const CallArguments& args) {
  BatchNorm norm;
  norm.input = args.Tensor(0);
  norm.weight = Optional(args, 1);
  norm.bias = Optional(args, 2);
  norm.mean = args.Tensor(3);
  norm.variance = args.Tensor(4);
  norm.training = true;
  Results results = BatchNormResults(norm);
  results.push_back(Contiguous(ScalarType::Byte, {0}));
  return results;
}

// The overload that also returns the updated running statistics.
Results BatchNormWithUpdateFunctional(const CallArguments& args) {
  Results results = BatchNormWithUpdate(args);
  results.push_back(EmptyLike(args.Tensor(3).scalar_type(), args.Tensor(3)));
  results.push_back(EmptyLike(args.Tensor(4).scalar_type(), args.Tensor(4)));
  return results;
}

Results BatchNormNoUpdate(const CallArguments& args) {
  BatchNorm norm;
  norm.input = args.Tensor(0);
  norm.weight = Optional(args, 1);
  norm.bias = Optional(args, 2);
  norm.mean = Optional(args, 3);
  norm.variance = Optional(args, 4);
  Results results = BatchNormResults(norm);
  results.push_back(Contiguous(ScalarType::Byte, {0}));
  return results;
}

Results BatchNormGradients(const at::Tensor& input, const at::Tensor& weight,
                           ScalarType statistics,
                           const std::vector<bool>& mask) {
  const ResultMeta parameter = Contiguous(statistics, {input.size(1)});
  return {If(mask[0], InFormat(input.scalar_type(), input.sizes(),
                               input.suggest_memory_format())),
          If(mask[1], parameter), If(mask[2], parameter)};
}

Results BatchNormBackward(const CallArguments& args) {
  const at::Tensor& input = args.Tensor(1);
  const at::Tensor weight = Optional(args, 2);
  return BatchNormGradients(
      input, weight,
      StatisticsType(input, {weight, Optional(args, 3), Optional(args, 4),
                             Optional(args, 5), Optional(args, 6)}),
      args.Booleans(9));
}

// ---- Weight normalisation ----

// Returns (weight, norms), with a norm for each slice along `dim`.
Results WeightNorm(const CallArguments& args) {
  const at::Tensor& v = args.Tensor(0);
  const at::Tensor& g = args.Tensor(1);
  CheckFloating("weight_norm", v);
  const ScalarType norm = g.scalar_type() == ScalarType::BFloat16
                              ? ScalarType::Float
                              : g.scalar_type();
  return {Contiguous(v.scalar_type(), v.sizes()), Contiguous(norm, g.sizes())};
}

// Returns the gradients of the saved v and g, which are the second and third
// arguments.
Results WeightNormBackward(const CallArguments& args) {
  const at::Tensor& v = args.Tensor(1);
  const at::Tensor& g = args.Tensor(2);
  return {Contiguous(v.scalar_type(), v.sizes()),
          Contiguous(g.scalar_type(), g.sizes())};
}

}  // namespace

void AddNormalizationRules(RuleTable* table) {
  table->Add({"aten::_weight_norm_interface"}, WeightNorm);
  table->Add({"aten::_weight_norm_interface_backward"}, WeightNormBackward);

  table->Add({"aten::native_layer_norm"}, NativeLayerNorm);
  table->Add({"aten::layer_norm"}, LayerNorm);
  table->Add({"aten::native_layer_norm_backward"}, NativeLayerNormBackward);

  table->Add({"aten::native_group_norm"}, NativeGroupNorm);
  table->Add({"aten::group_norm"}, GroupNorm);
  table->Add({"aten::native_group_norm_backward"}, NativeGroupNormBackward);

  table->Add({"aten::native_batch_norm", "aten::_native_batch_norm_legit"},
             NativeBatchNorm);
  table->Add({"aten::_native_batch_norm_legit.no_stats"}, NativeBatchNormAlone);
  table->Add({"aten::_native_batch_norm_legit_no_training"},
             NativeBatchNormEvaluating);
  table->Add({"aten::_native_batch_norm_legit_functional"},
             NativeBatchNormFunctional);
  table->Add({"aten::batch_norm"}, WholeBatchNorm);
  table->Add({"aten::batch_norm_update_stats"}, BatchNormUpdateStats);
  table->Add({"aten::_batch_norm_with_update"}, BatchNormWithUpdate);
  table->Add({"aten::_batch_norm_with_update_functional"},
             BatchNormWithUpdateFunctional);
  table->Add({"aten::_batch_norm_no_update"}, BatchNormNoUpdate);
  table->Add({"aten::native_batch_norm_backward", "aten::batch_norm_backward"},
             BatchNormBackward);
}

}  // namespace djinn
