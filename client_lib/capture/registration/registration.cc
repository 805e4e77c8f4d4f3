#include "client_lib/capture/registration/registration.h"

#include <ATen/Context.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client_lib/capture/kernel/capture_kernel.h"
#include "client_lib/capture/kernel/custom_operators.h"
#include "client_lib/capture/operators/operator_info.h"
#include "client_lib/capture/registration/function_transforms.h"
#include "client_lib/capture/registration/generator_states.h"
#include "client_lib/capture/registration/native_kernels.h"
#include "client_lib/capture/registration/nested_tensors.h"
#include "client_lib/capture/registration/packed_weights.h"
#include "client_lib/capture/registration/sparse_tensors.h"
#include "client_lib/capture/registration/split_rule.h"

namespace djinn::capture {
namespace {

using torch::jit::Stack;

// Composites that are captured whole, because a worker executes them better and
// a reader of the graph understands them better. They are split only if a
// gradient or autocast needs their parts.
const std::set<std::string>& CapturedWhole() {
  static const auto* const names = new std::set<std::string>{
      "aten::linear",
      "aten::matmul",
      "aten::einsum",
      "aten::conv1d",
      "aten::conv2d",
      "aten::conv3d",
      "aten::layer_norm",
      "aten::group_norm",
      "aten::rms_norm",
      "aten::batch_norm",
      "aten::softmax.int",
      "aten::log_softmax.int",
      "aten::dropout",
      "aten::scaled_dot_product_attention",
      "aten::lstm.input",
      "aten::gru.input",
      "aten::rnn_tanh.input",
      "aten::rnn_relu.input",
      "aten::lstm_cell",
      "aten::gru_cell",
      "aten::cross_entropy_loss",
      "aten::linalg_eigvals",
      // These composites do not compute the same bits as the CPU's kernels.
      "aten::silu_backward",
      "aten::mish_backward",
  };
  return *names;
}

// Operators whose composite is correct on remote tensors, because it ends in
// typed kernels or captured operators. If they were captured whole, they would
// return uninitialised memory or gain nothing.
const std::set<std::string>& LeftToComposite() {
  static const auto* const names = new std::set<std::string>{
      "aten::copy_",
      "aten::_to_copy",
      "aten::detach",
      "aten::alias",
      "aten::lift",
      "aten::lift_fresh",
      "aten::is_same_size",
      "aten::set_data",
      "aten::is_pinned",
      "aten::_pin_memory",
      "aten::pin_memory",
      "aten::allclose",
      "aten::empty_like",
      "aten::new_empty",
      "aten::new_empty_strided",
      "aten::empty_permuted",
      "aten::_resize_output_",
      "aten::resize_as_",
      "aten::_lazy_clone",
      "aten::_chunk_cat",
      "aten::_chunk_cat.out",
      // Lengths stay on the CPU.
      "aten::_pack_padded_sequence",
      // These change a view in place, which concerns only this process.
      "aten::as_strided_",
      "aten::detach_",
      "aten::squeeze_",
      "aten::squeeze_.dim",
      "aten::squeeze_.dims",
      "aten::t_",
      "aten::transpose_",
      "aten::unsqueeze_",
  };
  return *names;
}

// Splits dropout. PyTorch's own composite uses a fused kernel on devices other
// than the CPU. This function takes the CPU's own steps, so that the numbers
// are the CPU's.
at::Tensor SplitDropout(const at::Tensor& input, double p, bool train) {
  TORCH_CHECK(p >= 0 && p <= 1,
              "dropout probability has to be between 0 and 1, but got ", p);
  if (p == 0 || !train || input.numel() == 0) return input;
  if (p == 1) return input.mul(at::zeros({}, input.options()));
  at::Tensor noise = at::empty_like(input).bernoulli_(1 - p);
  noise.div_(1 - p);
  return input.mul(noise);
}

// Returns whether every return is a tensor or a list of tensors.
bool ReturnsTensors(const c10::FunctionSchema& schema) {
  for (const c10::Argument& returned : schema.returns()) {
    const c10::TypePtr& type = returned.real_type();
    if (type->kind() == c10::TypeKind::TensorType) continue;
    const auto* list = type->castRaw<c10::ListType>();
    if (list == nullptr ||
        list->getElementType()->kind() != c10::TypeKind::TensorType) {
      return false;
    }
  }
  return true;
}

bool HasComposite(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(
             c10::DispatchKey::CompositeImplicitAutograd) ||
         op.hasKernelForDispatchKey(
             c10::DispatchKey::CompositeExplicitAutograd);
}

// Returns the types of the arguments that are not outputs, to match an operator
// with its functional form.
std::vector<std::string> InputTypes(const c10::FunctionSchema& schema) {
  std::vector<std::string> types;
  for (const c10::Argument& argument : schema.arguments()) {
    if (!argument.is_out()) types.push_back(argument.real_type()->str());
  }
  return types;
}

// Returns whether `types` are `inputs` followed by the options that every
// factory takes.
bool IsFactoryOf(const std::vector<std::string>& types,
                 const std::vector<std::string>& inputs) {
  static const auto* const options = new std::vector<std::string>{
      "ScalarType?", "Layout?", "Device?", "bool?"};
  return types.size() == inputs.size() + options->size() &&
         std::equal(inputs.begin(), inputs.end(), types.begin()) &&
         std::equal(options->begin(), options->end(),
                    types.begin() + static_cast<ptrdiff_t>(inputs.size()));
}

// Captures aten::histc. PyTorch's CUDA kernel counts integers and its CPU
// kernel refuses them; programs such as transformers' experts pass integers on
// every device but the CPU. This kernel converts integers to doubles, which
// count exactly.
class HistogramKernel : public c10::OperatorKernel {
 public:
  // `info` lives for the rest of the process.
  explicit HistogramKernel(const OperatorInfo* info) : info_(info) {}

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet,
                  Stack* stack) {
    c10::IValue& counted = torch::jit::peek(*stack, 0, 4);
    const c10::ScalarType type = counted.toTensor().scalar_type();
    if (!c10::isIntegralType(type, /*includeBool=*/false)) {
      CaptureCall(*info_, stack);
      return;
    }
    counted = counted.toTensor().to(c10::kDouble);
    CaptureCall(*info_, stack);
    stack->back() = stack->back().toTensor().to(type);
  }

 private:
  const OperatorInfo* const info_;
};

// Captures aten::_embedding_bag_backward, unless its gradient is sparse: then
// PyTorch's kernel only calls other operators.
class EmbeddingBagKernel : public c10::OperatorKernel {
 public:
  // `info` lives for the rest of the process.
  explicit EmbeddingBagKernel(const OperatorInfo* info) : info_(info) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet,
                  Stack* stack) {
    constexpr size_t kSparse = 9;
    if (torch::jit::peek(*stack, kSparse, info_->arguments.size()).toBool()) {
      op.callBoxedForDispatchKey(c10::DispatchKey::CPU, *stack);
    } else {
      CaptureCall(*info_, stack);
    }
  }

 private:
  const OperatorInfo* const info_;
};

// Captures aten::_fused_moving_avg_obs_fq_helper. A captured call resizes none
// of its operands. PyTorch's kernel resizes the state of an observer per
// channel that has seen no channels yet, so this does it before the call.
class ObserverKernel : public c10::OperatorKernel {
 public:
  // `info` lives for the rest of the process.
  explicit ObserverKernel(const OperatorInfo* info) : info_(info) {}

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet,
                  Stack* stack) {
    const size_t count = info_->arguments.size();
    const auto tensor = [&](size_t i) {
      return torch::jit::peek(*stack, i, count).toTensor();
    };
    const at::Tensor minima = tensor(3);
    const int64_t axis = torch::jit::peek(*stack, 10, count).toInt();
    const bool per_channel = torch::jit::peek(*stack, 11, count).toBool();
    // A wrong axis is the kernel's to refuse.
    if (per_channel && minima.numel() == 0 && axis >= 0 &&
        axis < tensor(0).dim()) {
      constexpr float kInfinity = std::numeric_limits<float>::infinity();
      const int64_t channels = tensor(0).size(axis);
      minima.resize_(channels).fill_(kInfinity);
      tensor(4).resize_(channels).fill_(-kInfinity);
      tensor(5).resize_(channels);
      tensor(6).resize_(channels);
    }
    CaptureCall(*info_, stack);
  }

 private:
  const OperatorInfo* const info_;
};

// An operator whose CPU kernel refuses to run, or warns, if the program asks
// for deterministic algorithms.
struct Nondeterministic {
  absl::string_view name;
  // The name in PyTorch's error.
  const char* told;
};

constexpr Nondeterministic kNondeterministic[] = {
    {"aten::put", "put_"},
    {"aten::max_unpool2d", "max_unpooling2d_forward_out"},
    {"aten::max_unpool3d", "max_unpooling3d_forward_out"},
};

// Captures an operator of kNondeterministic. Adding is deterministic.
class NondeterministicKernel : public c10::OperatorKernel {
 public:
  // `info` lives for the rest of the process.
  NondeterministicKernel(const OperatorInfo* info, const char* told)
      : info_(info),
        told_(told),
        accumulate_(info->handle.schema().argumentIndexWithName("accumulate")) {
  }

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet,
                  Stack* stack) {
    if (!accumulate_.has_value() ||
        !torch::jit::peek(*stack, *accumulate_, info_->arguments.size())
             .toBool()) {
      at::globalContext().alertNotDeterministic(told_);
    }
    CaptureCall(*info_, stack);
  }

 private:
  const OperatorInfo* const info_;
  const char* const told_;
  const std::optional<int> accumulate_;
};

class Registrar {
 public:
  Registrar()
      : backend_(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1,
                 __FILE__, __LINE__),
        autograd_(torch::Library::IMPL, "aten",
                  c10::DispatchKey::AutogradPrivateUse1, __FILE__, __LINE__),
        conjugate_(torch::Library::IMPL, "aten", c10::DispatchKey::Conjugate,
                   __FILE__, __LINE__),
        negative_(torch::Library::IMPL, "aten", c10::DispatchKey::Negative,
                  __FILE__, __LINE__) {}

  void Run() {
    std::set<std::string> native = RegisterNativeKernels(&backend_);
    native.merge(RegisterPackedNetworks(&backend_, &autograd_));
    native.merge(RegisterAttentionChoice(&backend_));
    native.merge(RegisterPackedWeights(&backend_));
    native.merge(RegisterSparseConversions(&backend_));
    native.merge(RegisterNestedConversions(&backend_));
    RegisterSparseTensors();
    RegisterNestedTensors();
    RegisterGroupNormDerivative(&autograd_);
    RegisterFunctionTransforms();
    own_splits_ = RecurrentSplits();
    own_splits_.merge(GroupNormSplits());
    own_splits_.emplace(
        "aten::dropout",
        c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(SplitDropout)));
    counts_.native = native.size();
    // Copies resolve lazy conjugation and negation themselves. Otherwise
    // PyTorch would clone the operand first, and a clone is itself a copy.
    for (torch::Library* lazy : {&conjugate_, &negative_}) {
      lazy->impl("_copy_from", torch::CppFunction::makeFallthrough());
      lazy->impl("_copy_from_and_resize",
                 torch::CppFunction::makeFallthrough());
    }
    // This operator has no derivative formula, and its result needs none.
    autograd_.impl("_has_compatible_shallow_copy_type",
                   torch::CppFunction::makeFallthrough());
    for (const c10::OperatorName& name :
         c10::Dispatcher::singleton().getAllOpNames()) {
      if (!absl::StartsWith(name.name, "aten::")) continue;
      if (native.contains(toString(name))) continue;
      const auto op = c10::Dispatcher::singleton().findOp(name);
      if (op.has_value() && op->hasSchema()) RegisterOverload(*op);
    }
    MatchFunctionals();
    MatchScalars();
    RegisterGeneratorStates();
    RegisterCustomOperators();
  }

  const RegistrationCounts& counts() const { return counts_; }

 private:
  static torch::CppFunction KernelOf(const std::string& name,
                                     const OperatorInfo* info) {
    using torch::CppFunction;
    if (absl::StartsWith(name, "aten::_foreach_") &&
        info->handle.hasKernelForDispatchKey(
            c10::DispatchKey::CompositeExplicitAutograd)) {
      return CppFunction::makeFromBoxedFunctor(
          std::make_unique<ListKernel>(info));
    }
    if (name == "aten::histc") {
      return CppFunction::makeFromBoxedFunctor(
          std::make_unique<HistogramKernel>(info));
    }
    if (name == "aten::_fused_moving_avg_obs_fq_helper") {
      return CppFunction::makeFromBoxedFunctor(
          std::make_unique<ObserverKernel>(info));
    }
    if (name == "aten::_embedding_bag_backward") {
      return CppFunction::makeFromBoxedFunctor(
          std::make_unique<EmbeddingBagKernel>(info));
    }
    for (const Nondeterministic& each : kNondeterministic) {
      if (absl::StripSuffix(info->handle.schema().name(), "_") == each.name) {
        return CppFunction::makeFromBoxedFunctor(
            std::make_unique<NondeterministicKernel>(info, each.told));
      }
    }
    constexpr c10::DispatchKey kZero = c10::DispatchKey::ZeroTensor;
    if (!info->is_view && info->handle.hasKernelForDispatchKey(kZero) &&
        info->handle.isKernelFallthroughKernel(kZero)) {
      return CppFunction::makeFromBoxedFunctor(
          std::make_unique<ZeroKernel>(info));
    }
    return CppFunction::makeFromBoxedFunctor(
        std::make_unique<CaptureKernel>(info));
  }

  void RegisterOverload(const c10::OperatorHandle& op) {
    const std::string name = toString(op.operator_name());
    const bool implicit =
        op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
    const bool whole = implicit && CapturedWhole().contains(name);
    if (LeftToComposite().contains(name) || (implicit && !whole) ||
        (!ReturnsTensors(op.schema()) && HasComposite(op))) {
      ++counts_.composite;
      if (implicit && ReturnsTensors(op.schema())) {
        // This operator may be the functional form of another one, so its info
        // is created in any case.
        OperatorInfo& info = splits_.emplace_back(op);
        info.is_split = true;
        by_base_[op.schema().name()].push_back(&info);
      }
      return;
    }
    OperatorInfo& info = infos_.emplace_back(op);
    by_base_[op.schema().name()].push_back(&info);
    const std::string local = name.substr(std::string("aten::").size());
    ++counts_.captured;
    if (!whole) {
      backend_.impl(local.c_str(), KernelOf(name, &info));
      return;
    }
    ++counts_.captured_whole;
    const auto own = own_splits_.find(name);
    const SplitRule& rule = rules_.emplace_back(
        name, own == own_splits_.end() ? c10::KernelFunction() : own->second);
    backend_.impl(local.c_str(),
                  torch::CppFunction::makeFromBoxedFunctor(
                      std::make_unique<WholeKernel>(&info, &rule)));
    autograd_.impl(local.c_str(), torch::CppFunction::makeFromBoxedFunctor(
                                      std::make_unique<SplitKernel>(&rule)));
  }

  // Finds the overloads that take one number for all tensors. An optimizer's
  // lists of equal numbers are captured as one: see
  // OperatorInfo::with_one_scalar.
  void MatchScalars() {
    for (OperatorInfo& info : infos_) {
      const c10::FunctionSchema& schema = info.handle.schema();
      if (schema.overload_name() != "ScalarList" || info.arguments.size() < 2 ||
          info.arguments.front().kind != ArgumentKind::kTensorList ||
          info.arguments.back().kind != ArgumentKind::kScalarList) {
        continue;
      }
      std::vector<std::string> wanted = InputTypes(schema);
      wanted.pop_back();
      for (const OperatorInfo* candidate : by_base_[schema.name()]) {
        const c10::FunctionSchema& other = candidate->handle.schema();
        std::vector<std::string> types = InputTypes(other);
        if (other.overload_name() != "Scalar" || candidate->is_split ||
            types.empty() ||
            candidate->arguments.back().kind != ArgumentKind::kScalar) {
          continue;
        }
        types.pop_back();
        if (types == wanted) info.with_one_scalar = candidate;
      }
    }
  }

  void MatchFunctionals() {
    for (OperatorInfo& info : infos_) {
      if (!info.writes) continue;
      const c10::FunctionSchema& schema = info.handle.schema();
      std::string base = schema.name();
      if (!info.is_out && absl::EndsWith(base, "_")) base.pop_back();
      const std::vector<std::string> wanted = InputTypes(schema);
      for (OperatorInfo* candidate : by_base_[base]) {
        if (candidate->is_view || candidate->is_out) continue;
        // Both update running statistics.
        if (candidate->writes && !(info.is_out && candidate->fresh_results)) {
          continue;
        }
        const std::vector<std::string> types =
            InputTypes(candidate->handle.schema());
        const bool factory = info.is_out && IsFactoryOf(types, wanted);
        if (types != wanted && !factory) continue;
        info.functional = candidate;
        info.functional_is_factory = factory;
        // A captured operator is preferred to one that is split.
        if (!candidate->is_split) break;
      }
    }
  }

  torch::Library backend_;
  torch::Library autograd_;
  torch::Library conjugate_;
  torch::Library negative_;
  RegistrationCounts counts_;
  // The splits, by name, of composites that PyTorch's own would split
  // otherwise than on the CPU.
  std::map<std::string, c10::KernelFunction> own_splits_;
  // Kernels point into these deques.
  std::deque<SplitRule> rules_;
  std::deque<OperatorInfo> infos_;
  std::deque<OperatorInfo> splits_;
  absl::flat_hash_map<std::string, std::vector<OperatorInfo*>> by_base_;
};

}  // namespace

const RegistrationCounts& RegisterOperators() {
  // Never destroyed, because the dispatcher outlives static destructors.
  static const Registrar* const registrar = [] {
    auto* created = new Registrar;
    created->Run();
    return created;
  }();
  return registrar->counts();
}

}  // namespace djinn::capture
