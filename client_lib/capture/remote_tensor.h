// Remote tensors: plain c10::TensorImpls on zero-memory storages. The storage's
// data pointer is an address in reserved, inaccessible address space that no
// other living one has (so that identity and overlap checks work and a stray
// native access faults at once); its context is the session's RemoteStorage.
#ifndef CLIENT_LIB_CAPTURE_REMOTE_TENSOR_H_
#define CLIENT_LIB_CAPTURE_REMOTE_TENSOR_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <memory>

#include "client_lib/session/model/remote_storage.h"
#include "client_lib/session/recording/virtual_device.h"
#include "common/srg/structure.h"

namespace djinn::capture {

// The backend's allocator: a storage on the thread's current device. In
// shape-only mode the storage has no RemoteStorage.
c10::Allocator* RemoteAllocator();

// The thread's current device of this backend.
int CurrentDeviceIndex();

inline bool IsRemote(const at::Tensor& tensor) {
  return tensor.defined() &&
         tensor.device().type() == c10::DeviceType::PrivateUse1;
}

// The session's record of the tensor's storage; null for shape-only tensors.
RemoteStorage* StorageOf(const at::Tensor& tensor);
RemoteStorage* StorageOf(const c10::Storage& storage);

// The same for a call that is carried out. Throws when the tensor was made from
// an address by somebody else (at::from_blob): nothing is there.
RemoteStorage* OwnStorageOf(const at::Tensor& tensor);

// A tensor on a storage of its own, of the extent that sizes and strides need.
// In shape-only mode `device` is not looked at and may be null.
at::Tensor NewRemoteTensor(const std::shared_ptr<VirtualDevice>& device,
                           c10::IntArrayRef sizes, c10::IntArrayRef strides,
                           c10::ScalarType data_type);

// Wraps a storage that the session made already.
c10::Storage WrapStorage(StoragePtr storage, uint64_t size_bytes);

// Grows or shrinks the storage here and, if it exists there, on the worker,
// keeping the prefix. In shape-only mode only here.
void ResizeStorage(const c10::Storage& storage, uint64_t size_bytes);

// Throws when the dtype cannot live on a remote device.
srg::DataType DataTypeOf(const at::Tensor& tensor);

// The tensor's window onto its storage; the slot is not set.
srg::TensorView ViewOf(const at::Tensor& tensor);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_REMOTE_TENSOR_H_
