// Remote tensors are plain c10::TensorImpls whose storages have no memory. The
// storage's data pointer is unique among live storages, and points into
// reserved, inaccessible address space. Identity and overlap checks therefore
// work, and a native access by mistake faults at once. The pointer's context is
// the session's RemoteStorage.
#ifndef CLIENT_LIB_CAPTURE_DEVICE_REMOTE_TENSOR_H_
#define CLIENT_LIB_CAPTURE_DEVICE_REMOTE_TENSOR_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <memory>

#include "client_lib/session/model/remote_storage.h"
#include "client_lib/session/recording/virtual_device.h"
#include "common/srg/graph.h"

namespace djinn::capture {

// Returns the backend's allocator. It creates storages on the thread's current
// device; in shape-only mode they have no RemoteStorage.
c10::Allocator* RemoteAllocator();

// Returns the index of the thread's current device of this backend.
int CurrentDeviceIndex();

inline bool IsRemote(const at::Tensor& tensor) {
  return tensor.defined() &&
         tensor.device().type() == c10::DeviceType::PrivateUse1;
}

// Returns the session's record of the storage, or null for a shape-only or
// sparse tensor.
RemoteStorage* StorageOf(const at::Tensor& tensor);
RemoteStorage* StorageOf(const c10::Storage& storage);

// Returns the session's record of the storage, for a call that will be
// executed. Throws if the tensor was made from an address (at::from_blob),
// because there is no remote memory behind it.
RemoteStorage* OwnStorageOf(const at::Tensor& tensor);

// Creates a tensor with its own storage, as large as sizes and strides need. In
// shape-only mode `device` is ignored and may be null.
at::Tensor NewRemoteTensor(const std::shared_ptr<VirtualDevice>& device,
                           c10::IntArrayRef sizes, c10::IntArrayRef strides,
                           c10::ScalarType data_type);

// Wraps a storage that the session has created.
c10::Storage WrapStorage(StoragePtr storage, uint64_t size_bytes);

// Changes the size of the storage in this process and, if the worker has
// created the storage, on the worker. The bytes up to the smaller of both sizes
// stay. In shape-only mode, changes only this process's record.
void ResizeStorage(const c10::Storage& storage, uint64_t size_bytes);

// Throws if remote devices do not support the dtype.
srg::DataType DataTypeOf(const at::Tensor& tensor);

// Returns the tensor's view of its storage. The slot is not set.
srg::TensorView ViewOf(const at::Tensor& tensor);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_DEVICE_REMOTE_TENSOR_H_
