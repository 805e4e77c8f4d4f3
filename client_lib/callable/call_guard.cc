#include "client_lib/callable/call_guard.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "absl/container/flat_hash_map.h"
#include "client_lib/capture/device/lane.h"
#include "client_lib/capture/device/remote_tensor.h"
#include "client_lib/session/model/execution_flag.h"

namespace djinn::capture {
namespace {

template <typename T>
void Put(const T& value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void PutGeometry(const at::TensorBase& tensor, std::string* out) {
  Put(tensor.scalar_type(), out);
  Put(tensor.dim(), out);
  for (const int64_t size : tensor.sizes()) Put(size, out);
  Put(tensor.layout(), out);
  if (tensor.layout() == c10::kStrided) {
    for (const int64_t stride : tensor.strides()) Put(stride, out);
    Put(tensor.storage_offset(), out);
  }
  const uint8_t flags = static_cast<uint8_t>(
      (tensor.requires_grad() ? 1 : 0) | (tensor.is_conj() ? 2 : 0) |
      (tensor.is_neg() ? 4 : 0) | (tensor.is_inference() ? 8 : 0) |
      (tensor.is_leaf() ? 16 : 0) | (tensor.is_view() ? 32 : 0));
  Put(flags, out);
  if (tensor.has_storage()) Put(tensor.storage().nbytes(), out);
  if (tensor.is_view()) PutGeometry(tensor._base(), out);
}

// Returns a value that is equal for tensors that share memory, or null if the
// tensor has none.
const void* MemoryOf(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  return tensor.storage().data_ptr().get();
}

// Appends the thread's modes and settings on which calls depend.
void PutThreadState(std::string* out) {
  // A thread's first captured call gives it a lane, which changes the thread's
  // state. Its guard must be that of later calls.
  CurrentLane();
  const c10::AutogradState& autograd = c10::AutogradState::get_tls_state();
  for (const bool on :
       {autograd.get_grad_mode(), autograd.get_inference_mode(),
        autograd.get_fw_grad_mode(), autograd.get_multithreading_enabled(),
        autograd.get_view_replay_enabled(),
        at::SavedTensorDefaultHooks::is_enabled(),
        at::autocast::is_autocast_cache_enabled()}) {
    Put(on, out);
  }
  // The dispatch keys that an operator passes, or that the thread excludes.
  const c10::impl::LocalDispatchKeySet keys =
      c10::impl::tls_local_dispatch_key_set();
  Put(keys.included_.raw_repr(), out);
  Put(keys.excluded_.raw_repr(), out);
  Put(at::impl::PythonTorchFunctionTLS::get_disabled_state(), out);
  for (const c10::DeviceType type :
       {c10::DeviceType::PrivateUse1, c10::DeviceType::CPU}) {
    Put(at::autocast::is_autocast_enabled(type), out);
    Put(at::autocast::get_autocast_dtype(type), out);
  }
  Put(c10::typeMetaToScalarType(c10::get_default_dtype()), out);
  const at::Context& settings = at::globalContext();
  for (const bool on :
       {settings.deterministicAlgorithms(),
        settings.deterministicAlgorithmsWarnOnly(),
        settings.deterministicFillUninitializedMemory(),
        // These choose the way that a composite takes.
        settings.userEnabledMathSDP(), settings.userEnabledFlashSDP(),
        settings.userEnabledMemEfficientSDP(), settings.userEnabledCuDNNSDP(),
        settings.userEnabledOverrideableSDP(),
        settings.allowFP16BF16ReductionMathSDP(), settings.userEnabledCuDNN(),
        settings.userEnabledMkldnn(), settings.benchmarkCuDNN(),
        settings.deterministicCuDNN()}) {
    Put(on, out);
  }
  // These choose no operator, but the function may read them.
  Put(at::get_num_threads(), out);
  Put(CurrentRunMode().switches, out);
  Put(CurrentDeviceIndex(), out);
}

}  // namespace

std::string FindCallInterceptor() {
  if (c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Tracer)) {
    return "a trace sees every call";
  }
  if (c10::impl::tls_is_dispatch_key_included(
          c10::DispatchKey::FuncTorchDynamicLayerFrontMode)) {
    return "a transform of torch.func sees every call";
  }
  if (at::SavedTensorDefaultHooks::get_hooks().has_value()) {
    return "hooks see every tensor that autograd saves";
  }
  if (torch::autograd::AnomalyMode::is_enabled()) {
    return "autograd's anomaly detection sees every call";
  }
  return "";
}

size_t CountNodeHooks(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.requires_grad()) return 0;
  const auto count = [](const torch::autograd::Node* node) -> size_t {
    if (node == nullptr) return 0;
    return node->pre_hooks().size() + node->post_hooks().size();
  };
  if (tensor.is_leaf()) {
    return count(torch::autograd::impl::try_get_grad_accumulator(tensor).get());
  }
  // Reads the node without creating one. Asking a written view for its node
  // would create another node without hooks, or throw.
  return count(torch::autograd::impl::grad_fn_unsafe(tensor));
}

std::string GeometryOf(const at::TensorBase& tensor) {
  std::string geometry;
  PutGeometry(tensor, &geometry);
  return geometry;
}

std::string CallGuard(const std::string& key,
                      const std::vector<at::Tensor>& arguments,
                      const std::vector<at::Tensor>& parameters) {
  std::string guard;
  guard.reserve(key.size() + 64 * (arguments.size() + parameters.size() + 1));
  Put(key.size(), &guard);
  guard += key;
  PutThreadState(&guard);
  Put(arguments.size(), &guard);
  // The position of the first argument with each storage and of each tensor.
  absl::flat_hash_map<const void*, size_t> first_with;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const at::Tensor& tensor = arguments[i];
    // Tensors of transforms and subclasses must see every call themselves.
    if (!IsRemote(tensor) || !tensor.has_storage() ||
        at::isTensorSubclassLike(tensor) ||
        tensor._fw_grad(/*level=*/0).defined() ||
        StorageOf(tensor) == nullptr || tensor.has_names() ||
        CountNodeHooks(tensor) != 0) {
      return "";
    }
    Put(tensor.device().index(), &guard);
    PutGeometry(tensor, &guard);
    // Write two positions: that of the first argument with the same memory, and
    // that of the first argument that is the same tensor.
    Put(first_with.try_emplace(StorageOf(tensor), i).first->second, &guard);
    Put(first_with.try_emplace(tensor.unsafeGetTensorImpl(), i).first->second,
        &guard);
    // An argument may be one of the parameters, or only look like it.
    size_t same_parameter = 0;
    while (same_parameter < parameters.size() &&
           !parameters[same_parameter].is_same(tensor)) {
      ++same_parameter;
    }
    Put(same_parameter, &guard);
  }
  for (const at::Tensor& tensor : parameters) {
    Put(tensor.unsafeGetTensorImpl(), &guard);
    if (!tensor.defined()) continue;
    if (tensor.has_storage()) Put(MemoryOf(tensor), &guard);
    PutGeometry(tensor, &guard);
    if (tensor._fw_grad(/*level=*/0).defined() || tensor.has_names() ||
        CountNodeHooks(tensor) != 0) {
      return "";
    }
    if (tensor.requires_grad() && !tensor.is_leaf()) {
      // The function may read grad_fn. A new node may have the address of a
      // destroyed one, so the guard contains the node's number as well. A view
      // that was written gets its next node when the program asks for it; until
      // then the view's version distinguishes it.
      const torch::autograd::Node* const node =
          torch::autograd::impl::grad_fn_unsafe(tensor);
      Put(node, &guard);
      if (node != nullptr) Put(node->sequence_nr(), &guard);
      const auto* const view =
          torch::autograd::impl::get_view_autograd_meta(tensor);
      if (view != nullptr && view->has_bw_view() &&
          view->get_attr_version() != tensor._version()) {
        Put(tensor._version(), &guard);
      }
    }
  }
  return guard;
}

std::string GradientGuard(const std::vector<at::Tensor>& arguments,
                          const std::vector<at::Tensor>& parameters) {
  std::string guard;
  std::vector<at::Tensor> gradients;
  // The position of the first gradient in each memory.
  absl::flat_hash_map<const void*, size_t> first_in;
  for (const std::vector<at::Tensor>* tensors : {&arguments, &parameters}) {
    for (const at::Tensor& tensor : *tensors) {
      const bool any =
          tensor.defined() && tensor.is_leaf() && tensor.grad().defined();
      Put(any, &guard);
      if (!any) continue;
      const at::Tensor& gradient = gradients.emplace_back(tensor.grad());
      PutGeometry(gradient, &guard);
      const void* const memory = MemoryOf(gradient);
      if (memory == nullptr) continue;
      const auto [found, is_first] =
          first_in.try_emplace(memory, gradients.size() - 1);
      Put(found->second, &guard);
      if (is_first) continue;
      size_t same_tensor = 0;
      while (!gradients[same_tensor].is_same(gradient)) ++same_tensor;
      Put(same_tensor, &guard);
    }
  }
  if (gradients.empty()) return guard;
  // A gradient may share memory with an argument or a parameter.
  for (const std::vector<at::Tensor>* tensors : {&arguments, &parameters}) {
    for (size_t i = 0; i < tensors->size(); ++i) {
      const at::Tensor& tensor = (*tensors)[i];
      const auto found = first_in.find(MemoryOf(tensor));
      if (found == first_in.end()) continue;
      Put(i, &guard);
      Put(found->second, &guard);
      size_t same_tensor = 0;
      while (same_tensor < gradients.size() &&
             !gradients[same_tensor].is_same(tensor)) {
        ++same_tensor;
      }
      Put(same_tensor, &guard);
    }
    // Delimits the arguments from the parameters.
    Put(tensors->size(), &guard);
  }
  return guard;
}

}  // namespace djinn::capture
