#include "client_lib/capture/registration/native_kernels.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/InferSize.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_efficientzerotensor.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/_linalg_check_errors_native.h>
#include <ATen/ops/_new_zeros_with_same_feature_meta_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/all.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>

#include <cstring>
#include <optional>
#include <string>

#include "client_lib/capture/device/lane.h"
#include "client_lib/capture/device/remote_tensor.h"
#include "client_lib/capture/device/shape_only.h"
#include "client_lib/capture/device/throw_status.h"
#include "client_lib/capture/kernel/capture_kernel.h"
#include "client_lib/capture/kernel/copy.h"
#include "client_lib/capture/operators/boxed_call.h"

namespace djinn::capture {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

c10::Device DeviceOrCurrent(std::optional<c10::Device> device) {
  if (device.has_value() && device->has_index()) return *device;
  return {c10::DeviceType::PrivateUse1,
          static_cast<c10::DeviceIndex>(CurrentDeviceIndex())};
}

void CheckFactory(std::optional<c10::Layout> layout,
                  std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(!layout.has_value() || *layout == c10::kStrided,
                              "remote devices have strided tensors only");
  TORCH_CHECK(!pin_memory.value_or(false),
              "Only dense CPU tensors can be pinned");
}

// Returns whether new memory is filled with NaN, or the largest integer,
// because the program asks for deterministic algorithms.
bool FillsNewMemory() {
  const at::Context& context = at::globalContext();
  return context.deterministicAlgorithms() &&
         context.deterministicFillUninitializedMemory() &&
         !ShapeOnlyScope::Active();
}

at::Tensor FilledIfAsked(at::Tensor tensor) {
  if (FillsNewMemory()) at::native::fill_empty_deterministic_(tensor);
  return tensor;
}

at::Tensor Empty(c10::SymIntArrayRef size, std::optional<c10::ScalarType> dtype,
                 std::optional<c10::Layout> layout,
                 std::optional<c10::Device> device,
                 std::optional<bool> pin_memory,
                 std::optional<c10::MemoryFormat> memory_format) {
  CheckFactory(layout, pin_memory);
  const c10::DeviceGuard guard(DeviceOrCurrent(device));
  return FilledIfAsked(at::detail::empty_generic(
      C10_AS_INTARRAYREF_SLOW(size), RemoteAllocator(), kKeys,
      c10::dtype_or_default(dtype), memory_format));
}

at::Tensor EmptyStrided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                        std::optional<c10::ScalarType> dtype,
                        std::optional<c10::Layout> layout,
                        std::optional<c10::Device> device,
                        std::optional<bool> pin_memory) {
  CheckFactory(layout, pin_memory);
  const c10::DeviceGuard guard(DeviceOrCurrent(device));
  return FilledIfAsked(at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
      RemoteAllocator(), kKeys, c10::dtype_or_default(dtype)));
}

// Returns a symbolic zero, as for every device: a tensor without memory, whose
// products are symbolic zeros even at infinities. PyTorch replaces it by zeros
// before an operator that knows no symbolic zeros.
at::Tensor EfficientZeroTensor(c10::SymIntArrayRef size,
                               std::optional<c10::ScalarType> dtype,
                               std::optional<c10::Layout> layout,
                               std::optional<c10::Device> device,
                               std::optional<bool> pin_memory) {
  CheckFactory(layout, pin_memory);
  at::native::ZeroTensorAllocator allocator(DeviceOrCurrent(device));
  return at::detail::empty_generic(
      C10_AS_INTARRAYREF_SLOW(size), &allocator,
      kKeys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
      c10::dtype_or_default(dtype), std::nullopt);
}

at::Tensor AsStrided(const at::Tensor& self, c10::SymIntArrayRef size,
                     c10::SymIntArrayRef stride,
                     std::optional<c10::SymInt> storage_offset) {
  std::optional<int64_t> offset;
  if (storage_offset.has_value()) {
    offset = storage_offset->guard_int(__FILE__, __LINE__);
  }
  return at::native::as_strided_tensorimpl(self, C10_AS_INTARRAYREF_SLOW(size),
                                           C10_AS_INTARRAYREF_SLOW(stride),
                                           offset);
}

at::Tensor View(const at::Tensor& self, c10::SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}

at::Tensor ReshapeAlias(const at::Tensor& self, c10::SymIntArrayRef size,
                        c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size),
                                    C10_AS_INTARRAYREF_SLOW(stride));
}

void GrowToFit(const c10::TensorImpl& impl) {
  const size_t needed = at::detail::computeStorageNbytes(
      impl.sizes(), impl.strides(), impl.dtype().itemsize(),
      impl.storage_offset());
  if (impl.numel() > 0 && needed > impl.unsafe_storage().nbytes()) {
    ResizeStorage(impl.unsafe_storage(), needed);
  }
}

const at::Tensor& Resize(const at::Tensor& self, c10::SymIntArrayRef size,
                         std::optional<c10::MemoryFormat> memory_format) {
  const c10::IntArrayRef sizes = C10_AS_INTARRAYREF_SLOW(size);
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  const auto bytes_before =
      static_cast<int64_t>(impl->unsafe_storage().nbytes());
  if (self.sizes() != sizes) {
    impl->set_sizes_contiguous(sizes);
    GrowToFit(*impl);
  }
  if (memory_format.has_value()) {
    TORCH_CHECK(*memory_format != c10::MemoryFormat::Preserve,
                "Unsupported memory format", *memory_format);
    impl->empty_tensor_restride(*memory_format);
  }
  if (FillsNewMemory()) {
    at::native::fill_resize_deterministic_(self, bytes_before);
  }
  return self;
}

at::Tensor& SetStorageAndView(at::Tensor& self, at::Storage source,
                              c10::SymInt storage_offset,
                              c10::SymIntArrayRef size,
                              c10::SymIntArrayRef stride) {
  const c10::IntArrayRef sizes = C10_AS_INTARRAYREF_SLOW(size);
  TORCH_CHECK(source.device_type() == c10::DeviceType::PrivateUse1,
              "cannot set a remote tensor to a storage on ", source.device());
  c10::DimVector strides(C10_AS_INTARRAYREF_SLOW(stride));
  if (strides.empty() && !sizes.empty()) {
    strides = c10::TensorType::contiguousStridesOf(sizes);
  }
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_sizes_and_strides(sizes, strides,
                              storage_offset.guard_int(__FILE__, __LINE__));
  GrowToFit(*impl);
  return self;
}

at::Tensor& SetStorage(at::Tensor& self, at::Storage source) {
  const int64_t elements =
      static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return SetStorageAndView(self, std::move(source), 0, {c10::SymInt(elements)},
                           {c10::SymInt(1)});
}

at::Tensor& SetTensor(at::Tensor& self, const at::Tensor& source) {
  TORCH_CHECK(self.dtype() == source.dtype(), "Could not set tensor of type ",
              source.dtype(), " to a tensor of type ", self.dtype());
  if (self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl()) return self;
  return SetStorageAndView(self, source.storage(), source.sym_storage_offset(),
                           source.sym_sizes(), source.sym_strides());
}

// Gives the tensor a new, empty storage.
at::Tensor& SetEmpty(at::Tensor& self) {
  const at::Tensor fresh =
      Empty({c10::SymInt(0)}, self.scalar_type(), {}, self.device(), {}, {});
  return SetTensor(self, fresh);
}

at::Tensor CopyFrom(const at::Tensor& self, const at::Tensor& destination,
                    bool /*non_blocking*/) {
  if (!ShapeOnlyScope::Active()) CopyAny(self, destination);
  return destination;
}

at::Tensor CopyFromAndResize(const at::Tensor& self,
                             const at::Tensor& destination) {
  destination.resize_(self.sizes());
  return CopyFrom(self, destination, /*non_blocking=*/false);
}

at::Scalar LocalScalarDense(const at::Tensor& self) {
  if (ShapeOnlyScope::Active()) throw NoShape("aten::_local_scalar_dense");
  at::Tensor host =
      at::empty({}, at::TensorOptions(c10::kCPU).dtype(self.scalar_type()));
  CopyToCpu(self.reshape({}), host);
  return host.item();
}

// Reads the error codes of a decomposition and throws here, as on every device.
// If this were captured, it would fail on the worker, and no later call would
// depend on it.
void LinalgCheckErrors(const at::Tensor& info, c10::string_view name,
                       bool is_matrix) {
  if (ShapeOnlyScope::Active()) return;
  at::native::_linalg_check_errors(info, name, is_matrix);
}

bool Equal(const at::Tensor& self, const at::Tensor& other) {
  if (self.sizes() != other.sizes()) return false;
  return at::eq(self, other).all().item<bool>();
}

void RecordStream(at::Tensor& /*self*/, at::Stream /*stream*/) {}

bool HasCompatibleShallowCopyType(const at::Tensor&, const at::Tensor&) {
  return true;
}

// Returns whether a call on lists is one call for a worker: the lists have
// elements, equally many, and all tensors are on one device, except numbers.
bool IsOneCall(const OperatorInfo& info, Arguments arguments) {
  std::optional<size_t> length;
  std::optional<c10::Device> device;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool is_list = info.arguments[i].kind == ArgumentKind::kTensorList;
    if (is_list) {
      const size_t found = arguments[i].toListRef().size();
      if (found == 0 || found != length.value_or(found)) return false;
      length = found;
    }
    bool fits = true;
    ForEachDefinedTensor(arguments[i], [&](const at::Tensor& tensor) {
      if (!is_list && tensor.is_cpu() && tensor.dim() == 0) return;
      fits = fits && IsRemote(tensor) &&
             tensor.device() == device.value_or(tensor.device());
      device = tensor.device();
    });
    if (!fits) return false;
  }
  return true;
}

using OptionalTensor = std::optional<at::Tensor>;

int64_t ChooseAsCpu(const at::Tensor& query, const at::Tensor& key,
                    const at::Tensor& value, const OptionalTensor& mask,
                    double dropout, bool causal, std::optional<double> scale,
                    bool grouped) {
  // The CPU's own choice divides by the number of key heads.
  TORCH_CHECK(!grouped || key.dim() < 3 || key.size(-3) > 0,
              "scaled_dot_product_attention: grouped queries need keys with at "
              "least one head, got ",
              key.sizes());
  // PyTorch checks the mask's strides only for devices other than the CPU. A
  // mask that passes all other checks is left out of this check.
  const sdp::sdp_params params{query,   key,    value,  mask,
                               dropout, causal, grouped};
  const bool passes = sdp::check_tensor_shapes(params, /*debug=*/false) &&
                      sdp::check_attn_mask_shape(params, /*debug=*/false);
  return at::native::_fused_sdp_choice_cpp(query, key, value,
                                           passes ? std::nullopt : mask,
                                           dropout, causal, scale, grouped);
}

}  // namespace

std::set<std::string> RegisterNativeKernels(torch::Library* library) {
  std::set<std::string> names;
  const auto add = [&](const char* name, auto kernel) {
    library->impl(name, std::move(kernel));
    names.insert(std::string("aten::") + name);
  };
  add("empty.memory_format", TORCH_FN(Empty));
  add("empty_strided", TORCH_FN(EmptyStrided));
  add("_efficientzerotensor", TORCH_FN(EfficientZeroTensor));
  add("as_strided", TORCH_FN(AsStrided));
  add("view", TORCH_FN(View));
  add("view.dtype", TORCH_FN(at::native::view_dtype));
  add("_reshape_alias", TORCH_FN(ReshapeAlias));
  add("view_as_real", TORCH_FN(at::native::view_as_real));
  add("view_as_complex", TORCH_FN(at::native::view_as_complex));
  add("unfold", TORCH_FN(at::native::unfold));
  add("resize_", TORCH_FN(Resize));
  add("set_.source_Storage", TORCH_FN(SetStorage));
  add("set_.source_Storage_storage_offset", TORCH_FN(SetStorageAndView));
  add("set_.source_Tensor", TORCH_FN(SetTensor));
  add("set_", TORCH_FN(SetEmpty));
  add("is_set_to", TORCH_FN(at::native::is_set_to));
  add("_copy_from", TORCH_FN(CopyFrom));
  add("_copy_from_and_resize", TORCH_FN(CopyFromAndResize));
  add("_local_scalar_dense", TORCH_FN(LocalScalarDense));
  add("equal", TORCH_FN(Equal));
  add("_linalg_check_errors", TORCH_FN(LinalgCheckErrors));
  // This composite calls operators that are captured.
  add("_new_zeros_with_same_feature_meta",
      TORCH_FN(at::native::_new_zeros_with_same_feature_meta));
  add("record_stream", TORCH_FN(RecordStream));
  add("_has_compatible_shallow_copy_type",
      TORCH_FN(HasCompatibleShallowCopyType));
  return names;
}

void SplitKernel::operator()(const c10::OperatorHandle& op,
                             c10::DispatchKeySet keys,
                             torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  if (rule_->SplitsAboveAutograd(
          Arguments(stack->data() + (stack->size() - count), count))) {
    rule_->Split(op, keys, stack);
    return;
  }
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
}

void WholeKernel::operator()(const c10::OperatorHandle& op,
                             c10::DispatchKeySet keys,
                             torch::jit::Stack* stack) {
  if (rule_->SplitsBelowAutograd(ArgumentsOf(*info_, *stack))) {
    rule_->Split(op, keys, stack);
  } else {
    CaptureCall(*info_, stack);
  }
}

void ZeroKernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet,
                            torch::jit::Stack* stack) {
  std::optional<at::Tensor> zero;
  for (const c10::IValue& argument : ArgumentsOf(*info_, *stack)) {
    if (argument.isTensor() && argument.toTensor().defined() &&
        argument.toTensor()._is_zerotensor()) {
      zero = argument.toTensor();
    }
  }
  if (!zero.has_value()) {
    CaptureCall(*info_, stack);
  } else if (info_->reentry != c10::DispatchKey::Undefined) {
    op.callBoxedForDispatchKey(info_->reentry, *stack);
  } else {
    // A product of vectors.
    torch::jit::drop(*stack, info_->arguments.size());
    stack->emplace_back(at::_efficientzerotensor({}, zero->options()));
  }
}

void ListKernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet,
                            torch::jit::Stack* stack) {
  if (IsOneCall(*info_, ArgumentsOf(*info_, *stack))) {
    CaptureCall(*info_, stack);
  } else {
    op.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd,
                               *stack);
  }
}

std::set<std::string> RegisterAttentionChoice(torch::Library* library) {
  at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&ChooseAsCpu);
  library->impl("_fused_sdp_choice", TORCH_FN(ChooseAsCpu));
  return {"aten::_fused_sdp_choice"};
}

}  // namespace djinn::capture
