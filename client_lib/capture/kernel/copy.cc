#include "client_lib/capture/kernel/copy.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <memory>
#include <optional>
#include <string>

#include "client_lib/capture/device/backend.h"
#include "client_lib/capture/device/lane.h"
#include "client_lib/capture/device/process_session.h"
#include "client_lib/capture/device/remote_tensor.h"
#include "client_lib/capture/device/throw_status.h"
#include "client_lib/capture/kernel/capture_kernel.h"
#include "client_lib/capture/kernel/host_call.h"
#include "client_lib/capture/operators/operator_info.h"
#include "client_lib/session/model/debug_flags.h"
#include "client_lib/session/profile/request_tracer.h"

namespace djinn::capture {
namespace {

// Returns aten::copy_ as a captured operator. PyTorch's composite of that name
// never reaches a captured kernel.
const OperatorInfo& CopyOperator() {
  static const OperatorInfo* const info = new OperatorInfo(
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", ""));
  return *info;
}

// Returns whether PyTorch lacks the kernel of some copies of the dtype. These
// are the dtypes of bits and those that were added after uint64.
bool HasFewKernels(c10::ScalarType type) {
  return c10::isBitsType(type) || type > c10::ScalarType::UInt64;
}

// Throws the CPU's error if the CPU has no kernel for a copy of these dtypes.
void CheckHasKernel(c10::ScalarType source, c10::ScalarType destination) {
  if (!HasFewKernels(source) && !HasFewKernels(destination)) return;
  at::empty({1}, destination).copy_(at::empty({1}, source));
}

void RecordCopy(const at::Tensor& source, const at::Tensor& destination) {
  CheckHasKernel(source.scalar_type(), destination.scalar_type());
  torch::jit::Stack stack;
  stack.emplace_back(destination);
  stack.emplace_back(source);
  stack.emplace_back(false);
  CaptureCall(CopyOperator(), &stack);
}

at::Tensor PlainCpu(const at::Tensor& source, c10::ScalarType data_type) {
  return source.to(data_type).resolve_conj().resolve_neg();
}

// Uploads `bytes`, which has the layout of `destination`, to the whole storage
// of `destination`.
void UploadWhole(const at::Tensor& bytes, const at::Tensor& destination) {
  RemoteStorage* const storage = OwnStorageOf(destination);
  VirtualDevice* const device = storage->device().get();
  std::optional<HostWrite> host =
      HostWrite::OfUpload(bytes, destination, device);
  auto owner = std::make_shared<const at::Tensor>(bytes);
  const absl::string_view view(static_cast<const char*>(bytes.const_data_ptr()),
                               bytes.numel() * bytes.element_size());
  ThrowIfError(
      device->Upload(CurrentLane(), storage, {view, std::move(owner)}));
  if (host.has_value()) std::move(*host).Store();
}

// Returns the session's text for mixed devices, or nullopt if the session is
// not strict.
std::optional<std::string> StrictText() {
  const std::shared_ptr<Session> session = CurrentSession();
  return session == nullptr ? std::nullopt : session->options().strict_devices;
}

std::string Behind(const std::optional<std::string>& text) {
  return text.has_value() && !text->empty() ? " " + *text : "";
}

[[noreturn]] void ThrowTwoDevices(c10::Device a, c10::Device b,
                                  const std::optional<std::string>& text) {
  TORCH_CHECK(false,
              "Expected all tensors to be on the same device, but found at "
              "least two devices, ",
              a, " and ", b, "!", Behind(text));
}

}  // namespace

uint32_t CopyOperatorId() { return CopyOperator().operator_id; }

void CopyToRemote(const at::Tensor& source, const at::Tensor& destination) {
  if (destination.numel() == 0) return;
  if (source.dim() == 0) {
    // A single value is sent inside the call instead of as an upload.
    RecordCopy(PlainCpu(source, source.scalar_type()), destination);
    return;
  }
  const at::Tensor plain = PlainCpu(source, destination.scalar_type());
  const srg::TensorView view = ViewOf(destination);
  RemoteStorage* const storage = OwnStorageOf(destination);
  if (!view.conjugate && !view.negative &&
      srg::CoversStorage(view, storage->size_bytes())) {
    at::Tensor laid_out = plain;
    if (plain.sizes() != destination.sizes() ||
        plain.strides() != destination.strides()) {
      laid_out = at::empty_strided(destination.sizes(), destination.strides(),
                                   plain.options());
      laid_out.copy_(plain);
    }
    UploadWhole(laid_out, destination);
    return;
  }
  const at::Tensor contiguous = plain.contiguous();
  const at::Tensor temporary =
      NewRemoteTensor(storage->device(), contiguous.sizes(),
                      contiguous.strides(), contiguous.scalar_type());
  UploadWhole(contiguous, temporary);
  RecordCopy(temporary, destination);
}

namespace {

// Throws the error of the call that made a result without elements, if the call
// failed. No later read could tell it.
void CheckEmptyResult(const at::Tensor& source) {
  RemoteStorage* const storage = OwnStorageOf(source);
  VirtualDevice* const device = storage->device().get();
  // Nothing has written a storage of version 0, and a storage with bytes tells
  // its error when they are read.
  if (storage->size_bytes() != 0 || device->VersionOf(*storage) == 0) return;
  srg::TensorView nothing;
  nothing.data_type = DataTypeOf(source);
  nothing.sizes = {0};
  nothing.strides = {1};
  char unused = 0;
  ThrowIfError(
      device->Read(CurrentLane(), storage, nothing, &unused, /*bytes=*/0));
}

}  // namespace

void CopyToCpu(const at::Tensor& source, const at::Tensor& destination) {
  if (source.numel() == 0) {
    CheckEmptyResult(source);
    return;
  }
  const bool direct = destination.scalar_type() == source.scalar_type() &&
                      destination.sizes() == source.sizes() &&
                      destination.is_contiguous() && !destination.is_conj() &&
                      !destination.is_neg();
  const at::Tensor host =
      direct ? destination
             : at::empty(source.sizes(),
                         source.options().device(c10::kCPU).memory_format(
                             c10::MemoryFormat::Contiguous));
  RemoteStorage* const storage = OwnStorageOf(source);
  ThrowIfError(storage->device()->Read(
      CurrentLane(), storage, ViewOf(source), host.mutable_data_ptr(),
      static_cast<uint64_t>(host.numel()) * host.element_size()));
  if (!direct) destination.copy_(host);
}

namespace {

// Returns whether both tensors name exactly the same elements. PyTorch then
// copies nothing and checks no overlap.
bool IsSameData(const at::Tensor& source, const at::Tensor& destination) {
  return source.is_alias_of(destination) &&
         source.storage_offset() == destination.storage_offset() &&
         source.sizes() == destination.sizes() &&
         source.strides() == destination.strides() &&
         source.scalar_type() == destination.scalar_type() &&
         source.is_conj() == destination.is_conj() &&
         source.is_neg() == destination.is_neg();
}

// Returns whether the tensor's elements are exactly its storage's bytes.
bool IsWholeStorage(const at::Tensor& tensor) {
  const srg::TensorView view = ViewOf(tensor);
  return !view.conjugate && !view.negative &&
         srg::CoversStorage(view, OwnStorageOf(tensor)->size_bytes());
}

at::Tensor NewContiguous(const at::Tensor& place, const at::Tensor& like) {
  return NewRemoteTensor(OwnStorageOf(place)->device(), like.sizes(),
                         c10::TensorType::contiguousStridesOf(like.sizes()),
                         like.scalar_type());
}

// Workers send only whole storages to each other. A source that is not a whole
// storage is first copied to a new storage on its device, and the destination's
// device copies the received storage to the destination.
void CopyBetweenDevices(const at::Tensor& source,
                        const at::Tensor& destination) {
  CheckCopyAllowed(source.device(), destination.device());
  if (destination.numel() == 0) return;
  at::Tensor sent = source;
  if (!IsWholeStorage(source)) {
    sent = NewContiguous(source, source);
    RecordCopy(source, sent);
  }
  const bool direct = sent.scalar_type() == destination.scalar_type() &&
                      sent.sizes() == destination.sizes() &&
                      sent.strides() == destination.strides() &&
                      IsWholeStorage(destination);
  at::Tensor received = destination;
  if (!direct) {
    received =
        NewRemoteTensor(OwnStorageOf(destination)->device(), sent.sizes(),
                        sent.strides(), sent.scalar_type());
  }
  RemoteStorage* const storage = OwnStorageOf(received);
  ThrowIfError(
      storage->device()->CopyFrom(CurrentLane(), storage, OwnStorageOf(sent)));
  if (debug::Has(debug::kEager)) {
    ThrowIfError(storage->device()->Synchronize());
  }
  if (!direct) RecordCopy(received, destination);
}

at::Tensor Expand(const at::Tensor& source, c10::IntArrayRef sizes) {
  if (source.sizes() == sizes) return source;
  // Throws the CPU's error if the sizes cannot be broadcast.
  const c10::DimVector common = at::infer_size_dimvector(sizes, source.sizes());
  TORCH_CHECK(c10::IntArrayRef(common) == sizes, "output with shape ", sizes,
              " doesn't match the broadcast shape ", c10::IntArrayRef(common));
  return source.expand(sizes);
}

}  // namespace

void CopyAny(const at::Tensor& source, const at::Tensor& destination) {
  NoteWork();
  const at::Tensor expanded = Expand(source, destination.sizes());
  if (!IsRemote(destination)) {
    CopyToCpu(expanded, destination);
  } else if (!IsRemote(source)) {
    CopyToRemote(expanded, destination);
  } else if (source.device() != destination.device()) {
    CopyBetweenDevices(source, destination);
  } else if (destination.numel() > 0 && !IsSameData(source, destination)) {
    // The source is not expanded here, because overlaps show only in the
    // original operand.
    RecordCopy(source, destination);
  }
}

// Throws the error as PyTorch words it. For elementwise operators it names the
// two devices. For other operators it names the argument whose device differs,
// and the method under the name that PyTorch's generated code uses.
void ThrowMixedDevices(const OperatorInfo& info, size_t argument,
                       c10::Device common, c10::Device device) {
  const std::optional<std::string> text = StrictText();
  if (info.handle.hasTag(at::Tag::pointwise)) {
    ThrowTwoDevices(common, device, text);
  }
  const c10::FunctionSchema& schema = info.handle.schema();
  std::string method = schema.name();
  if (!schema.overload_name().empty()) method += "_" + schema.overload_name();
  method.erase(0, method.find("::") + 2);
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but got ",
              schema.arguments()[argument].name(), " is on ", device,
              ", different from other tensors on ", common,
              " (when checking argument in method wrapper_", DeviceName(), "_",
              method, ")", Behind(text));
}

void CheckCopyAllowed(c10::Device source, c10::Device destination) {
  const std::optional<std::string> text = StrictText();
  if (text.has_value()) ThrowTwoDevices(source, destination, text);
}

}  // namespace djinn::capture
