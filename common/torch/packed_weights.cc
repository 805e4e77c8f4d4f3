#include "common/torch/packed_weights.h"

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <typeinfo>
#include <utility>

#include "ATen/Context.h"
#include "ATen/core/class_type.h"
#include "ATen/core/dispatch/Dispatcher.h"
#include "ATen/core/function.h"
#include "ATen/core/jit_type.h"
#include "ATen/core/stack.h"
#include "ATen/native/quantized/PackedParams.h"
#include "ATen/ops/_make_per_channel_quantized_tensor.h"
#include "ATen/ops/_make_per_tensor_quantized_tensor.h"
#include "ATen/ops/scalar_tensor.h"
#include "absl/strings/str_cat.h"

namespace djinn {
namespace {

using torch::jit::Stack;

constexpr char kLinear[] =
    "__torch__.torch.classes.quantized.LinearPackedParamsBase";
constexpr char kConvolution2d[] =
    "__torch__.torch.classes.quantized.Conv2dPackedParamsBase";
constexpr char kConvolution3d[] =
    "__torch__.torch.classes.quantized.Conv3dPackedParamsBase";
constexpr char kCell[] = "__torch__.torch.classes.rnn.CellParamsBase";

// How a weight's numbers became integers. The values cross.
enum class Scheme : int64_t { kFloat16 = 0, kPerTensor = 1, kPerChannel = 2 };

c10::OperatorHandle Find(const std::string& name, const char* overload) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload);
}

c10::IValue CallOne(const std::string& name, Stack stack) {
  Find(name, "").callBoxed(stack);
  return stack.at(0);
}

// Returns the class of an object, or of a list's objects; empty for others.
std::string ClassOf(const c10::Type& type) {
  if (const auto* list = type.castRaw<c10::ListType>()) {
    return ClassOf(*list->getElementType());
  }
  const auto* object = type.castRaw<c10::ClassType>();
  return object == nullptr ? "" : object->name().value().qualifiedName();
}

// Puts parts together again. It checks whatever PyTorch's kernels trust.
class Packer {
 public:
  Packer(at::TensorList tensors, c10::IntArrayRef layout)
      : tensors_(tensors), layout_(layout) {}

  bool empty() const { return layout_.empty(); }

  c10::IValue Pack(const std::string& name) {
    if (name == kLinear) return PackLinear();
    if (name == kCell) return PackCell();
    TORCH_CHECK(name == kConvolution2d || name == kConvolution3d,
                "a packed weight has the unknown class ", name);
    return PackConvolution(name == kConvolution2d ? 2 : 3);
  }

  void Finish() const {
    TORCH_CHECK(layout_.empty() && tensors_.empty(), "packed weights have ",
                tensors_.size(), " parts too many");
  }

 private:
  const at::Tensor& TakeTensor() {
    TORCH_CHECK(!tensors_.empty(), "a packed weight has too few parts");
    const at::Tensor& taken = tensors_.front();
    tensors_ = tensors_.slice(1);
    return taken;
  }

  int64_t TakeInteger() {
    TORCH_CHECK(!layout_.empty(), "a packed weight has no description");
    const int64_t taken = layout_.front();
    layout_ = layout_.slice(1);
    return taken;
  }

  c10::List<int64_t> TakeIntegers(size_t count) {
    c10::List<int64_t> taken;
    for (size_t i = 0; i < count; ++i) taken.push_back(TakeInteger());
    return taken;
  }

  // Returns the weight, quantised again.
  at::Tensor TakeWeight(Scheme scheme) {
    const at::Tensor& numbers = TakeTensor();
    if (scheme == Scheme::kFloat16) {
      TORCH_CHECK(numbers.scalar_type() == c10::kFloat && numbers.dim() == 2,
                  "a packed weight of float16 must be a float32 matrix");
      return numbers;
    }
    TORCH_CHECK(numbers.scalar_type() == c10::kChar && numbers.dim() >= 2 &&
                    numbers.numel() > 0,
                "a packed weight must be a matrix of int8");
    const at::Tensor& scales = TakeTensor();
    const at::Tensor& zeros = TakeTensor();
    const int64_t count = scheme == Scheme::kPerTensor ? 1 : numbers.size(0);
    TORCH_CHECK(scales.scalar_type() == c10::kDouble && scales.dim() == 1 &&
                    zeros.scalar_type() == c10::kLong && zeros.dim() == 1 &&
                    scales.numel() == count && zeros.numel() == count,
                "a packed weight must have ", count, " scales and zero points");
    TORCH_CHECK(
        zeros.ge(-128).all().item<bool>() && zeros.le(127).all().item<bool>(),
        "a packed weight has a zero point outside int8");
    if (scheme == Scheme::kPerTensor) {
      return at::_make_per_tensor_quantized_tensor(
          numbers, scales[0].item<double>(), zeros[0].item<int64_t>());
    }
    return at::_make_per_channel_quantized_tensor(numbers, scales, zeros,
                                                  /*axis=*/0);
  }

  Scheme TakeScheme() {
    const int64_t scheme = TakeInteger();
    TORCH_CHECK(scheme >= 0 && scheme <= 2,
                "a packed weight has an unknown scheme, ", scheme);
    return static_cast<Scheme>(scheme);
  }

  c10::IValue TakeBias() {
    if (TakeInteger() == 0) return {};
    const at::Tensor& bias = TakeTensor();
    TORCH_CHECK(bias.scalar_type() == c10::kFloat && bias.dim() == 1,
                "the bias of a packed weight must be a float32 vector");
    return bias;
  }

  c10::IValue PackLinear() {
    const Scheme scheme = TakeScheme();
    const at::Tensor weight = TakeWeight(scheme);
    TORCH_CHECK(weight.dim() == 2, "a packed weight must be a matrix");
    c10::IValue bias = TakeBias();
    TORCH_CHECK(bias.isNone() || bias.toTensor().size(0) == weight.size(0),
                "the bias of a packed weight must have ", weight.size(0),
                " elements");
    return CallOne(scheme == Scheme::kFloat16 ? "quantized::linear_prepack_fp16"
                                              : "quantized::linear_prepack",
                   {weight, std::move(bias)});
  }

  c10::IValue PackCell() {
    const bool is_quantized = TakeInteger() != 0;
    const bool reduces_range = TakeInteger() != 0;
    c10::IValue input = PackLinear(), hidden = PackLinear();
    if (!is_quantized) {
      return CallOne("quantized::make_quantized_cell_params_fp16",
                     {std::move(input), std::move(hidden)});
    }
    const at::Tensor& input_bias = TakeTensor();
    const at::Tensor& hidden_bias = TakeTensor();
    return CallOne("quantized::make_quantized_cell_params_dynamic",
                   {std::move(input), std::move(hidden), input_bias,
                    hidden_bias, reduces_range});
  }

  c10::IValue PackConvolution(size_t dimensions) {
    const Scheme scheme = TakeScheme();
    TORCH_CHECK(scheme != Scheme::kFloat16,
                "a convolution's packed weight must be quantised");
    const bool transposed = TakeInteger() != 0;
    const int64_t groups = TakeInteger();
    const c10::List<int64_t> stride = TakeIntegers(dimensions);
    const c10::List<int64_t> padding = TakeIntegers(dimensions);
    const c10::List<int64_t> output_padding = TakeIntegers(dimensions);
    const c10::List<int64_t> dilation = TakeIntegers(dimensions);
    const at::Tensor weight = TakeWeight(scheme);
    TORCH_CHECK(static_cast<size_t>(weight.dim()) == dimensions + 2,
                "a convolution's packed weight must have ", dimensions + 2,
                " dimensions");
    const auto all = [](const c10::List<int64_t>& values, int64_t least) {
      return std::all_of(values.begin(), values.end(),
                         [least](int64_t value) { return value >= least; });
    };
    TORCH_CHECK(groups >= 1 && weight.size(0) % groups == 0 && all(stride, 1) &&
                    all(padding, 0) && all(output_padding, 0) &&
                    all(dilation, 1),
                "a convolution's packed weight has parameters out of range");
    c10::IValue bias = TakeBias();
    TORCH_CHECK(bias.isNone() ||
                    bias.toTensor().size(0) ==
                        (transposed ? weight.size(1) * groups : weight.size(0)),
                "the bias of a convolution's packed weight has a wrong size");
    if (transposed) {
      return CallOne(
          absl::StrCat("quantized::conv_transpose", dimensions, "d_prepack"),
          {weight, std::move(bias), stride, padding, output_padding, dilation,
           groups});
    }
    return CallOne(
        absl::StrCat("quantized::conv", dimensions, "d_prepack"),
        {weight, std::move(bias), stride, padding, dilation, groups});
  }

  at::TensorList tensors_;
  c10::IntArrayRef layout_;
};

// Takes objects apart.
class Unpacker {
 public:
  void Add(const c10::IValue& value) {
    if (value.isList()) {
      for (const c10::IValue& element : value.toListRef()) Add(element);
      return;
    }
    const std::string name = ClassOf(*value.type());
    if (name == kLinear) {
      AddLinear(value.toCustomClass<LinearPackedParamsBase>());
    } else if (name == kConvolution2d) {
      AddConvolution<2>(value, name);
    } else if (name == kConvolution3d) {
      AddConvolution<3>(value, name);
    } else if (name == kCell) {
      AddCell(value);
    } else {
      TORCH_CHECK_NOT_IMPLEMENTED(false, "objects of class ", name,
                                  " stay in their process");
    }
  }

  PackedParts parts;

 private:
  void AddShared(const at::Tensor& tensor) {
    parts.tensors.push_back(tensor);
    parts.shared.push_back(tensor);
  }

  static Scheme SchemeOf(const at::Tensor& weight) {
    if (!weight.is_quantized()) return Scheme::kFloat16;
    if (weight.qscheme() == c10::kPerTensorAffine) return Scheme::kPerTensor;
    TORCH_CHECK_NOT_IMPLEMENTED(
        weight.qscheme() == c10::kPerChannelAffine &&
            weight.q_per_channel_axis() == 0,
        "only weights that are quantised per tensor or per output channel "
        "run on remote devices, not ",
        toString(weight.qscheme()));
    return Scheme::kPerChannel;
  }

  void AddWeight(const at::Tensor& weight, Scheme scheme) {
    if (scheme == Scheme::kFloat16) {
      parts.tensors.push_back(weight.contiguous());
      return;
    }
    TORCH_CHECK_NOT_IMPLEMENTED(
        weight.scalar_type() == c10::kQInt8,
        "only weights of qint8 run on remote devices, not ",
        weight.scalar_type());
    parts.tensors.push_back(weight.int_repr().contiguous());
    if (scheme == Scheme::kPerTensor) {
      parts.tensors.push_back(
          at::scalar_tensor(weight.q_scale(), c10::kDouble).view({1}));
      parts.tensors.push_back(
          at::scalar_tensor(weight.q_zero_point(), c10::kLong).view({1}));
      return;
    }
    parts.tensors.push_back(
        weight.q_per_channel_scales().to(c10::kDouble).contiguous());
    parts.tensors.push_back(
        weight.q_per_channel_zero_points().to(c10::kLong).contiguous());
  }

  void AddBias(const std::optional<at::Tensor>& bias) {
    const bool has_bias = bias.has_value() && bias->defined();
    parts.layout.push_back(has_bias ? 1 : 0);
    if (has_bias) AddShared(bias->detach());
  }

  void AddLinear(const c10::intrusive_ptr<LinearPackedParamsBase>& object) {
    const auto [weight, bias] = object->unpack();
    const Scheme scheme = SchemeOf(weight);
    parts.layout.push_back(static_cast<int64_t>(scheme));
    AddWeight(weight, scheme);
    AddBias(bias);
    const auto again =
        CallOne(scheme == Scheme::kFloat16 ? "quantized::linear_prepack_fp16"
                                           : "quantized::linear_prepack",
                {weight, bias})
            .toCustomClass<LinearPackedParamsBase>();
    const LinearPackedParamsBase& first = *object;
    const LinearPackedParamsBase& second = *again;
    CheckEngine(typeid(first), typeid(second));
  }

  static void CheckEngine(const std::type_info& object,
                          const std::type_info& again) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        object == again && at::globalContext().qEngine() == DefaultEngine(),
        "a weight was packed for another torch.backends.quantized.engine than "
        "a worker packs for, ",
        toString(DefaultEngine()));
  }

  // Returns the engine that PyTorch chooses if a program does not.
  static c10::QEngine DefaultEngine() {
    const auto& engines = at::Context::supportedQEngines();
    const bool has_x86 = std::find(engines.begin(), engines.end(),
                                   c10::QEngine::X86) != engines.end();
    return has_x86 ? c10::QEngine::X86 : c10::QEngine::QNNPACK;
  }

  template <int kDimensions>
  void AddConvolution(const c10::IValue& value, const std::string& name) {
    const auto object =
        value.toCustomClass<ConvPackedParamsBase<kDimensions>>();
    const auto [weight, bias] = object->unpack();
    const Scheme scheme = SchemeOf(weight);
    const size_t begin = parts.tensors.size();
    const size_t begin_layout = parts.layout.size();
    parts.layout.push_back(static_cast<int64_t>(scheme));
    parts.layout.push_back(object->transpose() ? 1 : 0);
    parts.layout.push_back(object->groups());
    for (const torch::List<int64_t>& values :
         {object->stride(), object->padding(), object->output_padding(),
          object->dilation()}) {
      for (const int64_t each : values) parts.layout.push_back(each);
    }
    AddWeight(weight, scheme);
    AddBias(bias);
    Packer packer(at::TensorList(parts.tensors).slice(begin),
                  c10::IntArrayRef(parts.layout).slice(begin_layout));
    const auto again =
        packer.Pack(name).toCustomClass<ConvPackedParamsBase<kDimensions>>();
    const ConvPackedParamsBase<kDimensions>& first = *object;
    const ConvPackedParamsBase<kDimensions>& second = *again;
    CheckEngine(typeid(first), typeid(second));
  }

  void AddCell(const c10::IValue& value) {
    Stack stack = {value};
    value.type()
        ->expectRef<c10::ClassType>()
        .getMethod("__getstate__")
        .run(stack);
    // The kind of cell, its tensors, reals, integers and packed weights.
    const std::vector<c10::IValue> state =
        stack.at(0).toTupleRef().elements().vec();
    const std::string& kind = state.at(0).toStringRef();
    const bool is_quantized = kind == "quantized_dynamic";
    TORCH_CHECK_NOT_IMPLEMENTED(
        is_quantized || kind == "quantized_fp16",
        "only recurrent cells that are quantised dynamically run on remote "
        "devices, not ",
        kind);
    parts.layout.push_back(is_quantized ? 1 : 0);
    const std::vector<int64_t> integers = state.at(3).toIntVector();
    parts.layout.push_back(integers.empty() ? 0 : integers[0]);
    for (const c10::IValue& weight : state.at(4).toListRef()) {
      AddLinear(weight.toCustomClass<LinearPackedParamsBase>());
    }
    for (const at::Tensor& bias : state.at(1).toTensorVector()) {
      AddShared(bias.detach());
    }
  }
};

}  // namespace

bool IsPackedType(const c10::Type& type) { return !ClassOf(type).empty(); }

PackedParts TakeApart(const c10::IValue& value) {
  Unpacker unpacker;
  unpacker.Add(value);
  return std::move(unpacker.parts);
}

c10::IValue PackAgain(const c10::Type& type, at::TensorList tensors,
                      c10::IntArrayRef layout) {
  // The objects keep memory of the parts, which later calls may write.
  std::vector<at::Tensor> own;
  for (const at::Tensor& tensor : tensors) {
    own.push_back(tensor.clone(at::MemoryFormat::Contiguous));
  }
  const std::string name = ClassOf(type);
  Packer packer(own, layout);
  c10::IValue result;
  if (const auto* list = type.castRaw<c10::ListType>()) {
    c10::impl::GenericList objects(list->getElementType());
    while (!packer.empty()) objects.push_back(packer.Pack(name));
    result = std::move(objects);
  } else {
    result = packer.Pack(name);
  }
  packer.Finish();
  return result;
}

}  // namespace djinn
