#include "common/torch/packed_operators.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/boxing/OperatorKernel.h"
#include "ATen/core/jit_type.h"
#include "ATen/core/stack.h"
#include "ATen/ops/empty.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/torch/packed_weights.h"
#include "torch/library.h"

namespace djinn {
namespace {

using torch::jit::Stack;

struct Listed {
  const char* name;
  const char* overload;
};

// The operators on packed weights whose tensors are strided: those of dynamic
// quantisation.
constexpr Listed kOperators[] = {
    {"quantized::linear_dynamic", ""},
    {"quantized::linear_relu_dynamic", ""},
    {"quantized::linear_dynamic_fp16", ""},
    {"quantized::linear_relu_dynamic_fp16", ""},
    {"quantized::conv1d_dynamic", ""},
    {"quantized::conv2d_dynamic", ""},
    {"quantized::conv3d_dynamic", ""},
    {"quantized::conv_transpose1d_dynamic", ""},
    {"quantized::conv_transpose2d_dynamic", ""},
    {"quantized::conv_transpose3d_dynamic", ""},
    {"quantized::quantized_lstm_cell_dynamic", ""},
    {"quantized::quantized_gru_cell_dynamic", ""},
    {"quantized::quantized_rnn_relu_cell_dynamic", ""},
    {"quantized::quantized_rnn_tanh_cell_dynamic", ""},
    {"aten::quantized_lstm", "input"},
    {"aten::quantized_gru", "input"},
};

c10::OperatorHandle Find(const std::string& name, const char* overload) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload);
}

thread_local PackedSource* thread_source = nullptr;

c10::IValue ObjectOf(const c10::Type& type, at::TensorList tensors,
                     c10::IntArrayRef layout) {
  return thread_source == nullptr ? PackAgain(type, tensors, layout)
                                  : thread_source->Get(type, tensors, layout);
}

// Packs weights and runs PyTorch's operator on them.
class PackedKernel final : public c10::OperatorKernel {
 public:
  explicit PackedKernel(c10::OperatorHandle original) : original_(original) {}

  void operator()(const c10::OperatorHandle& called, c10::DispatchKeySet,
                  Stack* stack) {
    const std::vector<c10::IValue> arguments =
        torch::jit::pop(*stack, called.schema().arguments().size());
    Stack call;
    auto next = arguments.begin();
    for (const c10::Argument& argument : original_.schema().arguments()) {
      if (!IsPackedType(*argument.real_type())) {
        call.push_back(*next++);
        continue;
      }
      const std::vector<at::Tensor> tensors = (next++)->toTensorVector();
      const std::vector<int64_t> layout = (next++)->toIntVector();
      call.push_back(ObjectOf(*argument.real_type(), tensors, layout));
    }
    original_.callBoxed(call);
    for (c10::IValue& value : call) stack->push_back(std::move(value));
  }

 private:
  const c10::OperatorHandle original_;
};

// Computes the results' sizes of a call as programs make it. For all others it
// throws c10::NotImplementedError, so that the worker decides.
void MetaOfPacked(const c10::OperatorHandle& called, Stack* stack) {
  const std::vector<c10::IValue> arguments =
      torch::jit::pop(*stack, called.schema().arguments().size());
  const absl::string_view name = called.schema().name();
  const at::Tensor& input = arguments[0].toTensor();
  const auto expect = [](bool usual) {
    TORCH_CHECK_NOT_IMPLEMENTED(usual, "a worker decides");
  };
  expect(input.scalar_type() == c10::kFloat && input.numel() > 0);
  if (absl::StrContains(name, "linear")) {
    const at::Tensor weight = arguments[1].toTensorVector().at(0);
    expect(input.dim() >= 2 && input.size(-1) == weight.size(1));
    std::vector<int64_t> sizes = input.sizes().vec();
    sizes.back() = weight.size(0);
    stack->emplace_back(at::empty(sizes, input.options()));
    return;
  }
  const bool is_lstm = absl::StrContains(name, "lstm");
  std::vector<at::Tensor> states = is_lstm
                                       ? arguments[1].toTensorVector()
                                       : std::vector{arguments[1].toTensor()};
  expect(states.size() == (is_lstm ? 2 : 1));
  if (!absl::StrContains(name, "cell")) {
    expect(input.dim() == 3 && states[0].dim() == 3);
    const bool bidirectional = arguments.at(8).toBool();
    const bool batch_first = arguments.at(9).toBool();
    const int64_t width = states[0].size(2) * (bidirectional ? 2 : 1);
    const at::Tensor outputs =
        at::empty({input.size(batch_first ? 1 : 0),
                   input.size(batch_first ? 0 : 1), width},
                  input.options());
    stack->emplace_back(batch_first ? outputs.transpose(0, 1) : outputs);
  }
  for (const at::Tensor& state : states) {
    stack->emplace_back(at::empty(state.sizes(), input.options()));
  }
}

std::string NameOnParts(const Listed& listed) {
  const absl::string_view name = listed.name;
  return absl::StrCat(kPackedNamespace, name.substr(name.find("::") + 2));
}

class Definitions {
 public:
  Definitions() {
    for (const Listed& listed : kOperators) Define(listed);
  }

 private:
  void Define(const Listed& listed) {
    const c10::OperatorHandle original = Find(listed.name, listed.overload);
    std::vector<c10::Argument> arguments;
    for (const c10::Argument& argument : original.schema().arguments()) {
      if (!IsPackedType(*argument.real_type())) {
        arguments.push_back(argument);
        continue;
      }
      arguments.emplace_back(argument.name(), c10::ListType::ofTensors());
      arguments.emplace_back(argument.name() + "_layout",
                             c10::ListType::ofInts());
    }
    const std::string name = NameOnParts(listed);
    library_.def(c10::FunctionSchema(name, "", std::move(arguments),
                                     original.schema().returns()));
    cpu_.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(
                                std::make_unique<PackedKernel>(original)));
    // The sizes of a convolution are the worker's business.
    if (!absl::StrContains(name, "conv")) {
      meta_.impl(name.c_str(),
                 torch::CppFunction::makeFromBoxedFunction<&MetaOfPacked>());
    }
  }

  torch::Library library_{torch::Library::DEF, "djinn_packed", std::nullopt,
                          __FILE__, __LINE__};
  torch::Library cpu_{torch::Library::IMPL, "djinn_packed",
                      c10::DispatchKey::CPU, __FILE__, __LINE__};
  torch::Library meta_{torch::Library::IMPL, "djinn_packed",
                       c10::DispatchKey::Meta, __FILE__, __LINE__};
};

}  // namespace

void DefinePackedOperators() {
  // Never destroyed, because the dispatcher outlives static destructors. A
  // process may load two libraries that contain this function.
  static const Definitions* const definitions =
      c10::Dispatcher::singleton()
              .findSchema({NameOnParts(kOperators[0]), ""})
              .has_value()
          ? nullptr
          : new Definitions;
  (void)definitions;
}

UsePackedSource::UsePackedSource(PackedSource* source)
    : before_(std::exchange(thread_source, source)) {}

UsePackedSource::~UsePackedSource() { thread_source = before_; }

std::vector<PackedOperator> PackedOperators() {
  std::vector<PackedOperator> operators;
  for (const Listed& listed : kOperators) {
    operators.push_back(
        {Find(listed.name, listed.overload), Find(NameOnParts(listed), "")});
  }
  return operators;
}

}  // namespace djinn
