#include "client_lib/capture/registration/sparse_tensors.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/Resize.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/_embedding_bag_sparse_backward.h>
#include <ATen/ops/_sparse_csr_tensor_unsafe.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/capture/device/backend.h"
#include "client_lib/capture/device/lane.h"
#include "client_lib/capture/device/remote_tensor.h"
#include "client_lib/capture/registration/sparse_indices.h"
#include "common/torch/sparse_checks.h"
#include "common/torch/sparse_operators.h"

namespace djinn::capture {
namespace {

using c10::DispatchKey;
using torch::jit::Stack;

template <typename Kernel, typename... Arguments>
torch::CppFunction MakeKernel(Arguments&&... arguments) {
  return torch::CppFunction::makeFromBoxedFunctor(
      std::make_unique<Kernel>(std::forward<Arguments>(arguments)...));
}

// Gives each device of the call an index and returns the device that the call
// creates tensors on.
std::optional<c10::Device> PlaceCall(size_t count, Stack* stack) {
  std::optional<c10::Device> of_tensor;
  std::optional<c10::Device> named;
  for (size_t i = stack->size() - count; i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (value.isTensor() && IsRemote(value.toTensor())) {
      if (!of_tensor.has_value()) of_tensor = value.toTensor().device();
    } else if (value.isDevice() && value.toDevice().is_privateuseone()) {
      c10::Device device = value.toDevice();
      if (!device.has_index()) {
        device.set_index(static_cast<c10::DeviceIndex>(CurrentDeviceIndex()));
        value = device;
      }
      named = device;
    }
  }
  return named.has_value() ? named : of_tensor;
}

// Calls the kernel that PyTorch registered at another key. That kernel only
// calls operators on its operands' parts.
class SharedKernel final : public c10::OperatorKernel {
 public:
  explicit SharedKernel(DispatchKey key) : key_(key) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet,
                  Stack* stack) {
    const c10::OptionalDeviceGuard guard(
        PlaceCall(op.schema().arguments().size(), stack));
    op.callBoxedForDispatchKey(key_, *stack);
  }

 private:
  const DispatchKey key_;
};

// Returns whether the CPU can show its error for the operand's metadata.
bool HasStandIn(const at::Tensor& operand) {
  return operand.layout() != c10::kSparseBsr &&
         operand.layout() != c10::kSparseBsc;
}

// Returns a tensor on the CPU with the operand's metadata: a sparse one without
// elements, indices with their values, or a strided one that repeats a zero.
at::Tensor StandIn(const at::Tensor& operand) {
  const at::TensorOptions options = operand.options().device(c10::kCPU);
  if (operand.layout() == c10::kStrided) {
    if (operand.scalar_type() == c10::kLong && operand.dim() <= 1) {
      return operand.cpu();
    }
    return at::zeros({}, options).expand(operand.sizes());
  }
  return at::zeros(operand.sizes(), options);
}

// Throws the error that the CPU raises for the operands' metadata, if any. Call
// this after a failure only, because the CPU computes a call that it accepts.
void ThrowAsCpu(const c10::OperatorHandle& op, Stack arguments) {
  for (c10::IValue& argument : arguments) {
    if (!argument.isTensor()) continue;
    if (!HasStandIn(argument.toTensor())) return;
    argument = StandIn(argument.toTensor());
  }
  if (op.schema().name() == "aten::_spdiags") {
    // The CPU's kernel would write outside its results.
    sparse::Operands operands = {arguments[0].toTensor(),
                                 arguments[1].toTensor()};
    sparse::OtherArguments others = {arguments[2]};
    sparse::CheckDiagonals(&operands, &others);
  }
  op.callBoxed(arguments);
}

c10::OperatorHandle Find(const std::string& name, const char* overload) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload);
}

// One of PyTorch's operators that returns new tensors, and the operators that
// run it on the worker.
struct OnWorker {
  explicit OnWorker(const std::string& name, const char* overload)
      : original(Find(absl::StrCat("aten::", name), overload)) {
    const std::string own = absl::StrCat(kSparseNamespace, name);
    c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
    any_layout = dispatcher.findSchema({own, ""});
    strided = dispatcher.findSchema({own, "strided"});
  }

  // Returns the result of a call.
  at::Tensor operator()(const Stack& arguments) const {
    const bool is_strided = strided.has_value() && ReturnsStrided(arguments);
    const std::vector<at::Tensor> results =
        Call(is_strided ? *strided : any_layout.value(), arguments, {});
    return is_strided ? results.at(0) : JoinResult(results);
  }

  // Returns the results of a call of an operator that returns strided tensors.
  // `own` are the arguments that PyTorch's operator does not have.
  std::vector<at::Tensor> Strided(const Stack& arguments,
                                  const Stack& own = {}) const {
    return Call(any_layout.value(), arguments, own);
  }

  c10::OperatorHandle original;

 private:
  std::vector<at::Tensor> Call(const c10::OperatorHandle& op,
                               const Stack& arguments, const Stack& own) const {
    std::vector<at::Tensor> parts;
    std::vector<int64_t> layout;
    Stack numbers;
    std::vector<at::Tensor> operands;
    for (const c10::IValue& argument : arguments) {
      if (argument.isTensor()) {
        const at::Tensor& operand = argument.toTensor();
        const auto same = absl::c_find_if(operands, [&](const at::Tensor& one) {
          return one.is_same(operand);
        });
        AppendParts(operand, &parts, &layout,
                    same == operands.end()
                        ? std::nullopt
                        : std::optional<size_t>(same - operands.begin()));
        operands.push_back(operand);
      } else {
        numbers.push_back(argument);
      }
    }
    Stack call = {parts, layout};
    call.insert(call.end(), numbers.begin(), numbers.end());
    call.insert(call.end(), own.begin(), own.end());
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    try {
      op.callBoxed(call);
    } catch (...) {  // The front end may have translated the error.
      ThrowAsCpu(original, arguments);
      throw;
    }
    std::vector<at::Tensor> results;
    for (c10::IValue& value : call) {
      results.push_back(std::move(value).toTensor());
    }
    return results;
  }

  // A product has the layout of its addend, if there is one.
  bool ReturnsStrided(const Stack& arguments) const {
    return !any_layout.has_value() ||
           arguments[0].toTensor().layout() == c10::kStrided;
  }

  std::optional<c10::OperatorHandle> any_layout;
  std::optional<c10::OperatorHandle> strided;
};

// Makes `out` what `result` is, in the dtype of `out`.
void Store(const at::Tensor& result, const at::Tensor& out) {
  TORCH_CHECK(result.layout() == out.layout(), "a result of layout ",
              result.layout(), " cannot be written to a tensor of layout ",
              out.layout());
  TORCH_CHECK(c10::canCast(result.scalar_type(), out.scalar_type()),
              "result type ", result.scalar_type(),
              " can't be cast to the desired output type ", out.scalar_type());
  if (out.layout() == c10::kStrided) {
    at::native::resize_output(out, result.sizes());
    out.copy_(result);
  } else if (out.layout() == c10::kSparse) {
    at::SparseTensorImpl* const impl = at::sparse::get_sparse_impl(out);
    impl->raw_resize_(result.sparse_dim(), result.dense_dim(), result.sizes());
    impl->set_indices_and_values_unsafe(result._indices(),
                                        result._values().to(out.scalar_type()));
    impl->set_coalesced(result.is_coalesced());
  } else {
    const bool rows =
        out.layout() == c10::kSparseCsr || out.layout() == c10::kSparseBsr;
    static_cast<at::SparseCsrTensorImpl*>(out.unsafeGetTensorImpl())
        ->set_member_tensors(
            rows ? result.crow_indices() : result.ccol_indices(),
            rows ? result.col_indices() : result.row_indices(),
            result.values().to(out.scalar_type()), result.sizes());
  }
}

// Runs one of PyTorch's operators on the worker. An operator that writes a
// tensor stores the result there.
class WorkerKernel final : public c10::OperatorKernel {
 public:
  explicit WorkerKernel(OnWorker operation)
      : operation_(std::move(operation)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet,
                  Stack* stack) {
    const c10::FunctionSchema& schema = op.schema();
    Stack arguments = torch::jit::pop(*stack, schema.arguments().size());
    std::optional<at::Tensor> written;
    if (schema.arguments().back().is_out()) {
      written = arguments.back().toTensor();
      arguments.pop_back();
    } else if (absl::EndsWith(schema.name(), "_")) {
      written = arguments.front().toTensor();
    }
    at::Tensor result = operation_(arguments);
    if (written.has_value()) {
      Store(result, *written);
      result = *written;
    }
    stack->emplace_back(std::move(result));
  }

 private:
  const OnWorker operation_;
};

// Multiplies a CSR matrix with a strided one and reduces. While gradients are
// recorded, also returns which elements the results came from.
std::tuple<at::Tensor, at::Tensor> ReducedProduct(const at::Tensor& self,
                                                  const at::Tensor& other,
                                                  c10::string_view reduce) {
  static const auto* const product = new OnWorker("_sparse_mm_reduce_impl", "");
  const bool returns_sources = at::GradMode::is_enabled() &&
                               (self.requires_grad() || other.requires_grad());
  const std::vector<at::Tensor> results =
      product->Strided({self, other, std::string(reduce)}, {returns_sources});
  return {results.at(0), results.at(1)};
}

std::tuple<at::Tensor, at::Tensor> ReducedProductGradient(
    const at::Tensor& self, const at::Tensor& grad_out,
    const at::Tensor& weight, c10::string_view reduce,
    const at::Tensor& arg_out, std::array<bool, 2> output_mask) {
  static const auto* const gradient =
      new OnWorker("_sparse_mm_reduce_impl_backward", "");
  const std::vector<at::Tensor> results =
      gradient->Strided({self, grad_out, weight, std::string(reduce), arg_out,
                         c10::List<bool>({output_mask[0], output_mask[1]})});
  at::Tensor of_self;
  if (output_mask[0]) {
    of_self = at::_sparse_csr_tensor_unsafe(
        self.crow_indices().clone(), self.col_indices().clone(), results.at(0),
        self.sizes(), results[0].options().layout(c10::kSparseCsr));
  }
  return {of_self, output_mask[1] ? results.at(1) : at::Tensor()};
}

// Converts a compressed tensor to a layout. PyTorch's kernel reads the memory
// itself for a compressed layout, but not the operators for each of these.
at::Tensor ConvertCompressed(const at::Tensor& self,
                             std::optional<c10::Layout> layout,
                             at::OptionalIntArrayRef blocksize,
                             std::optional<int64_t> dense_dim) {
  const bool whole = !blocksize.has_value();
  const c10::Layout target = layout.value_or(c10::kSparse);
  if (target != self.layout()) {
    if (target == c10::kSparseCsr && whole) {
      return self.to_sparse_csr(dense_dim);
    }
    if (target == c10::kSparseCsc && whole) {
      return self.to_sparse_csc(dense_dim);
    }
    if (target == c10::kSparseBsr && !whole) {
      return self.to_sparse_bsr(*blocksize, dense_dim);
    }
    if (target == c10::kSparseBsc && !whole) {
      return self.to_sparse_bsc(*blocksize, dense_dim);
    }
  }
  // PyTorch's kernel refuses the other cases.
  static const auto op =
      Find("aten::_to_sparse", "")
          .typed<at::Tensor(const at::Tensor&, std::optional<c10::Layout>,
                            at::OptionalIntArrayRef, std::optional<int64_t>)>();
  return op.redispatch(c10::DispatchKeySet(DispatchKey::SparseCsrCPU), self,
                       layout, blocksize, dense_dim);
}

// Solves with a sparse matrix. PyTorch leaves the second output as it is.
std::tuple<at::Tensor&, at::Tensor&> TriangularSolveOut(
    const at::Tensor& self, const at::Tensor& matrix, bool upper,
    bool transpose, bool unitriangular, at::Tensor& solution,
    at::Tensor& cloned_coefficient) {
  static const auto* const solve = new OnWorker("triangular_solve", "");
  TORCH_CHECK_NOT_IMPLEMENTED(
      self.dim() == 2 && matrix.dim() == 2,
      "triangular_solve: sparse tensors on ", DeviceName(),
      " are not solved in batches, for which PyTorch leaves results without "
      "values: solve one after the other");
  Store((*solve)({self, matrix, upper, transpose, unitriangular}), solution);
  return {solution, cloned_coefficient};
}

// Runs an operator on the worker if its first two operands are sparse. Its
// other cases only call operators on the operands' parts.
class IntersectionKernel final : public c10::OperatorKernel {
 public:
  explicit IntersectionKernel(OnWorker operation)
      : shared_(DispatchKey::SparseCPU), on_worker_(std::move(operation)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  Stack* stack) {
    const size_t count = op.schema().arguments().size();
    const auto is_sparse = [](const c10::IValue& value) {
      return value.toTensor().is_sparse() && value.toTensor().dim() > 0;
    };
    if (is_sparse(torch::jit::peek(*stack, 0, count)) &&
        is_sparse(torch::jit::peek(*stack, 1, count))) {
      on_worker_(op, keys, stack);
    } else {
      shared_(op, keys, stack);
    }
  }

 private:
  SharedKernel shared_;
  WorkerKernel on_worker_;
};

// Adds a sparse tensor to a strided one without copying the strided one.
void AddInPlace(const at::Tensor& self, const at::Tensor& other,
                const at::Scalar& alpha) {
  static const c10::OperatorHandle op =
      Find(absl::StrCat(kSparseNamespace, "add_"), "");
  std::vector<at::Tensor> parts;
  std::vector<int64_t> layout;
  AppendParts(other, &parts, &layout);
  Stack call = {self, parts, layout, alpha};
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  op.callBoxed(call);
}

at::Tensor& AddOut(const at::Tensor& self, const at::Tensor& other,
                   const at::Scalar& alpha, at::Tensor& out) {
  static const auto* const add = new OnWorker("add", "Tensor");
  if (self.layout() != c10::kStrided || other.layout() == c10::kStrided) {
    Store((*add)({self, other, alpha}), out);
    return out;
  }
  if (self.sizes() != other.sizes()) {
    ThrowAsCpu(add->original, {self, other, alpha});
  }
  const c10::ScalarType common =
      c10::promoteTypes(self.scalar_type(), other.scalar_type());
  TORCH_CHECK(c10::canCast(common, out.scalar_type()),
              "Can't convert result type ", common, " to output ",
              out.scalar_type(), " in add operation");
  if (out.scalar_type() != common) {
    const at::Tensor sum = self.to(common, /*non_blocking=*/false,
                                   /*copy=*/true);
    AddInPlace(sum, other, alpha);
    at::native::resize_output(out, sum.sizes());
    out.copy_(sum);
    return out;
  }
  if (!out.is_same(self)) {
    at::native::resize_output(out, self.sizes());
    out.copy_(self);
  }
  AddInPlace(out, other, alpha);
  return out;
}

void RefuseSparse(const c10::OperatorHandle& op, Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, op.schema().name(), ": sparse tensors on ", DeviceName(),
      " do not support it: call to_dense() or cpu() before");
}

void RefuseQuantized(const c10::OperatorHandle& op, Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, op.schema().name(), ": ", DeviceName(),
      " has no quantised tensors: dequantize() before, or keep them here");
}

// The operators whose sparse kernels read memory themselves, on each device.
struct Listed {
  const char* name;
  const char* overload;
};

constexpr Listed kCooOnWorker[] = {
    {"_coalesce", ""},
    {"_sparse_sparse_matmul", ""},
    {"_sparse_sum_backward", ""},
    {"_sparse_softmax", ""},
    {"_sparse_softmax_backward_data", ""},
    {"_sparse_log_softmax", ""},
    {"_sparse_log_softmax_backward_data", ""},
    {"index_select", ""},
    {"hspmm", ""},
    {"hspmm", "out"},
    {"addmm", ""},
    {"addmm_", ""},
    {"addmm", "out"},
    {"bmm", ""},
    {"bmm", "out"},
    {"sspaddmm", "out"},
};
constexpr Listed kIntersections[] = {
    {"mul", "out"}, {"sparse_mask", ""}, {"_sparse_mask_projection", ""}};
constexpr Listed kCompressedOnWorker[] = {
    {"addmm", ""},
    {"addmm", "out"},
    {"addmv", "out"},
    {"_sparse_csr_sum", "dim_dtype"},
    {"_sparse_csr_prod", "dim_dtype"},
    {"sparse_sampled_addmm", ""},
    {"sparse_sampled_addmm", "out"},
    {"_to_sparse_csr", ""},
    {"_to_sparse_csc", ""},
    {"_to_sparse_bsr", ""},
    {"_to_sparse_bsc", ""},
};

std::string NameOf(const Listed& listed) {
  return *listed.overload == '\0'
             ? listed.name
             : absl::StrCat(listed.name, ".", listed.overload);
}

OnWorker OperationOf(const Listed& listed) {
  std::string name = listed.name;
  if (absl::EndsWith(name, "_")) name.pop_back();
  const bool is_out = absl::string_view(listed.overload) == "out";
  if (name == "mul") return OnWorker(name, "Tensor");
  return OnWorker(name, is_out ? "" : listed.overload);
}

// Registers the kernels of one key.
class KeyRegistrar {
 public:
  // `shared` is the key whose kernels serve this one.
  KeyRegistrar(DispatchKey key, DispatchKey shared)
      : key_(key),
        shared_(shared),
        library_(KeepForever(std::make_unique<torch::Library>(
            torch::Library::IMPL, "aten", key, __FILE__, __LINE__))) {}

  template <typename Kernel>
  void AddAll(c10::ArrayRef<Listed> list) {
    for (const Listed& listed : list) {
      Add(NameOf(listed), MakeKernel<Kernel>(OperationOf(listed)));
    }
  }

  void Add(const std::string& name, torch::CppFunction kernel) {
    library_.impl(name.c_str(), std::move(kernel));
    names_.insert(name);
  }

  // Registers the shared kernels of all other operators, and the refusal of
  // those that have none.
  void Finish() {
    for (const c10::OperatorName& name :
         c10::Dispatcher::singleton().getAllOpNames()) {
      if (!absl::StartsWith(name.name, "aten::")) continue;
      const std::string local = toString(name).substr(sizeof("aten::") - 1);
      const auto op = c10::Dispatcher::singleton().findOp(name);
      if (names_.contains(local) || !op.has_value() || !op->hasSchema() ||
          !op->hasKernelForDispatchKey(shared_)) {
        continue;
      }
      library_.impl(local.c_str(), MakeKernel<SharedKernel>(shared_));
    }
    RegisterFallback(
        key_, torch::CppFunction::makeFromBoxedFunction<&RefuseSparse>());
  }

  static void RegisterFallback(DispatchKey key, torch::CppFunction refusal) {
    KeepForever(std::make_unique<torch::Library>(torch::Library::IMPL, "_", key,
                                                 __FILE__, __LINE__))
        .fallback(std::move(refusal));
  }

 private:
  const DispatchKey key_;
  const DispatchKey shared_;
  torch::Library& library_;
  absl::flat_hash_set<std::string> names_;
};

}  // namespace

std::set<std::string> RegisterSparseConversions(torch::Library* backend) {
  DefineSparseOperators();
  std::set<std::string> names;
  const auto add = [&](const std::string& name, auto&& kernel) {
    backend->impl(name.c_str(), std::forward<decltype(kernel)>(kernel));
    names.insert("aten::" + name);
  };
  for (const char* name :
       {"_to_sparse", "_to_sparse.sparse_dim", "_to_sparse_csr",
        "_to_sparse_csc", "_to_sparse_bsr", "_to_sparse_bsc"}) {
    add(name, MakeKernel<SharedKernel>(DispatchKey::CPU));
  }
  add("_spdiags", MakeKernel<WorkerKernel>(OnWorker("_spdiags", "")));
  add("_convert_indices_from_coo_to_csr", TORCH_FN(CompressIndices));
  add("_convert_indices_from_csr_to_coo", TORCH_FN(UncompressIndices));
  add("_validate_compressed_sparse_indices",
      TORCH_FN(ValidateCompressedIndices));
  return names;
}

void RegisterSparseTensors() {
  DefineSparseOperators();
  KeyRegistrar coo(DispatchKey::SparsePrivateUse1, DispatchKey::SparseCPU);
  coo.AddAll<WorkerKernel>(kCooOnWorker);
  coo.AddAll<IntersectionKernel>(kIntersections);
  coo.Add("add.out", torch::CppFunction(TORCH_FN(AddOut)));
  coo.Finish();
  KeyRegistrar compressed(DispatchKey::SparseCsrPrivateUse1,
                          DispatchKey::SparseCsrCPU);
  compressed.AddAll<WorkerKernel>(kCompressedOnWorker);
  compressed.Add("add.out", torch::CppFunction(TORCH_FN(AddOut)));
  compressed.Add("_sparse_mm_reduce_impl",
                 torch::CppFunction(TORCH_FN(ReducedProduct)));
  compressed.Add("_sparse_mm_reduce_impl_backward",
                 torch::CppFunction(TORCH_FN(ReducedProductGradient)));
  compressed.Add("_to_sparse", torch::CppFunction(TORCH_FN(ConvertCompressed)));
  compressed.Add("triangular_solve.X",
                 torch::CppFunction(TORCH_FN(TriangularSolveOut)));
  compressed.Finish();
  KeyRegistrar::RegisterFallback(
      DispatchKey::QuantizedPrivateUse1,
      torch::CppFunction::makeFromBoxedFunction<&RefuseQuantized>());
}

}  // namespace djinn::capture
