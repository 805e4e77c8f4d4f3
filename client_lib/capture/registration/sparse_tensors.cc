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
#include <ATen/ops/_validate_compressed_sparse_indices.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/capture/device/backend.h"
#include "client_lib/capture/device/lane.h"
#include "client_lib/capture/device/remote_tensor.h"
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
// elements, or a strided one that repeats a zero.
at::Tensor StandIn(const at::Tensor& operand) {
  const at::TensorOptions options = operand.options().device(c10::kCPU);
  if (operand.layout() == c10::kStrided) {
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
        Call(is_strided ? *strided : any_layout.value(), arguments);
    return is_strided ? results.at(0) : JoinResult(results);
  }

  // Returns the results of a call of an operator that returns strided tensors.
  std::vector<at::Tensor> Strided(const Stack& arguments) const {
    return Call(any_layout.value(), arguments);
  }

  c10::OperatorHandle original;

 private:
  std::vector<at::Tensor> Call(const c10::OperatorHandle& op,
                               const Stack& arguments) const {
    std::vector<at::Tensor> parts;
    std::vector<int64_t> layout;
    Stack numbers;
    for (const c10::IValue& argument : arguments) {
      if (argument.isTensor()) {
        AppendParts(argument.toTensor(), &parts, &layout);
      } else {
        numbers.push_back(argument);
      }
    }
    Stack call = {parts, layout};
    call.insert(call.end(), numbers.begin(), numbers.end());
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

// Runs an operator that returns strided tensors on the worker.
class StridedResultsKernel final : public c10::OperatorKernel {
 public:
  explicit StridedResultsKernel(OnWorker operation)
      : operation_(std::move(operation)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet,
                  Stack* stack) {
    const Stack arguments =
        torch::jit::pop(*stack, op.schema().arguments().size());
    for (at::Tensor& result : operation_.Strided(arguments)) {
      stack->emplace_back(std::move(result));
    }
  }

 private:
  const OnWorker operation_;
};

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

// Returns the first position of each row, and the end, from sorted row numbers.
// PyTorch's own kernel trusts its operand.
at::Tensor CompressIndices(const at::Tensor& self, int64_t size,
                           bool out_int32) {
  const at::TensorOptions options =
      self.options().dtype(out_int32 ? c10::kInt : c10::kLong);
  if (self.numel() == 0) return at::zeros({size + 1}, options);
  return at::searchsorted(self.contiguous(),
                          at::arange(size + 1, self.options()), out_int32);
}

// Returns the coordinates of the elements of a compressed tensor, one row for
// each dimension. PyTorch's own kernel trusts its operands.
at::Tensor UncompressIndices(const at::Tensor& compressed,
                             const at::Tensor& plain, bool out_int32,
                             bool transpose) {
  const c10::ScalarType type = out_int32 ? c10::kInt : c10::kLong;
  const at::TensorOptions options = plain.options().dtype(type);
  const int64_t batch_dimensions = plain.dim() - 1;
  if (plain.numel() == 0) return at::zeros({batch_dimensions + 2, 0}, options);
  std::vector<at::Tensor> rows;
  for (int64_t i = 0; i < batch_dimensions; ++i) {
    std::vector<int64_t> view(plain.dim(), 1);
    view[i] = plain.size(i);
    rows.push_back(at::arange(plain.size(i), options)
                       .view(view)
                       .expand(plain.sizes())
                       .reshape({-1}));
  }
  const at::Tensor ends = compressed.slice(-1, 1).contiguous();
  const at::Tensor numbers = at::arange(plain.size(-1), compressed.options())
                                 .expand(plain.sizes())
                                 .contiguous();
  const at::Tensor outer =
      at::searchsorted(ends, numbers, out_int32, /*right=*/true).reshape({-1});
  const at::Tensor inner = plain.reshape({-1}).to(type);
  rows.push_back(transpose ? inner : outer);
  rows.push_back(transpose ? outer : inner);
  return at::stack(rows);
}

// Checks indices in this process, which waits for them. PyTorch calls this only
// if the program asks for checks.
void ValidateCompressedIndices(bool is_crow, const at::Tensor& compressed,
                               const at::Tensor& plain, int64_t size,
                               int64_t plain_size, int64_t count) {
  at::_validate_compressed_sparse_indices(is_crow, compressed.cpu(),
                                          plain.cpu(), size, plain_size, count);
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
constexpr Listed kStridedResults[] = {{"_sparse_mm_reduce_impl", ""}};
// The operators that read memory and that no worker runs on sparse tensors.
constexpr Listed kCooRefused[] = {{"sspaddmm", "out"}};
constexpr Listed kCompressedRefused[] = {
    {"_sparse_mm_reduce_impl_backward", ""},
    {"triangular_solve", "X"},
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

  void Skip(c10::ArrayRef<Listed> list) {
    for (const Listed& listed : list) names_.insert(NameOf(listed));
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
  coo.Skip(kCooRefused);
  coo.Finish();
  KeyRegistrar compressed(DispatchKey::SparseCsrPrivateUse1,
                          DispatchKey::SparseCsrCPU);
  compressed.AddAll<WorkerKernel>(kCompressedOnWorker);
  compressed.AddAll<StridedResultsKernel>(kStridedResults);
  compressed.Add("add.out", torch::CppFunction(TORCH_FN(AddOut)));
  compressed.Skip(kCompressedRefused);
  compressed.Finish();
  KeyRegistrar::RegisterFallback(
      DispatchKey::QuantizedPrivateUse1,
      torch::CppFunction::makeFromBoxedFunction<&RefuseQuantized>());
}

}  // namespace djinn::capture
