#include "client_lib/capture/call_guard.h"

#include <ATen/Context.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

#include "client_lib/capture/remote_tensor.h"

namespace djinn::capture {
namespace {

template <typename T>
void Put(const T& value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void PutGeometry(const at::Tensor& tensor, std::string* out) {
  Put(tensor.scalar_type(), out);
  Put(tensor.dim(), out);
  for (const int64_t size : tensor.sizes()) Put(size, out);
  for (const int64_t stride : tensor.strides()) Put(stride, out);
  Put(tensor.storage_offset(), out);
  const uint8_t flags = static_cast<uint8_t>(
      (tensor.requires_grad() ? 1 : 0) | (tensor.is_conj() ? 2 : 0) |
      (tensor.is_neg() ? 4 : 0) | (tensor.is_inference() ? 8 : 0));
  Put(flags, out);
}

// What a thread's calls depend on besides their arguments.
void PutThreadState(std::string* out) {
  Put(at::GradMode::is_enabled(), out);
  Put(c10::InferenceMode::is_enabled(), out);
  for (const c10::DeviceType type :
       {c10::DeviceType::PrivateUse1, c10::DeviceType::CPU}) {
    Put(at::autocast::is_autocast_enabled(type), out);
    Put(at::autocast::get_autocast_dtype(type), out);
  }
  Put(c10::typeMetaToScalarType(c10::get_default_dtype()), out);
  const at::Context& settings = at::globalContext();
  Put(settings.deterministicAlgorithms(), out);
  // Which way a composite takes.
  Put(settings.userEnabledMathSDP(), out);
  Put(settings.userEnabledFlashSDP(), out);
  Put(settings.userEnabledMemEfficientSDP(), out);
  Put(CurrentDeviceIndex(), out);
}

}  // namespace

std::string CallGuard(const std::string& key,
                      const std::vector<at::Tensor>& arguments,
                      const std::vector<at::Tensor>& parameters) {
  std::string guard;
  guard.reserve(key.size() + 64 * (arguments.size() + parameters.size() + 1));
  Put(key.size(), &guard);
  guard += key;
  PutThreadState(&guard);
  Put(arguments.size(), &guard);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const at::Tensor& tensor = arguments[i];
    // Of a transform's or a subclass' tensors others have to see every call.
    if (!IsRemote(tensor) || !tensor.has_storage() ||
        at::isTensorSubclassLike(tensor) ||
        tensor._fw_grad(/*level=*/0).defined() ||
        StorageOf(tensor) == nullptr) {
      return "";
    }
    Put(tensor.device().index(), &guard);
    PutGeometry(tensor, &guard);
    // Which arguments share memory, and which are the same tensor.
    size_t same_memory = 0;
    while (StorageOf(arguments[same_memory]) != StorageOf(tensor)) {
      ++same_memory;
    }
    size_t same_tensor = 0;
    while (!arguments[same_tensor].is_same(tensor)) ++same_tensor;
    Put(same_memory, &guard);
    Put(same_tensor, &guard);
  }
  for (const at::Tensor& tensor : parameters) {
    Put(tensor.unsafeGetTensorImpl(), &guard);
    if (!tensor.defined()) continue;
    if (tensor.has_storage()) Put(tensor.storage().data_ptr().get(), &guard);
    PutGeometry(tensor, &guard);
    if (tensor._fw_grad(/*level=*/0).defined()) return "";
  }
  return guard;
}

std::string GradientGuard(const std::vector<at::Tensor>& parameters) {
  std::string guard;
  for (const at::Tensor& tensor : parameters) {
    const bool any =
        tensor.defined() && tensor.is_leaf() && tensor.grad().defined();
    Put(any, &guard);
    if (any) PutGeometry(tensor.grad(), &guard);
  }
  return guard;
}

}  // namespace djinn::capture
