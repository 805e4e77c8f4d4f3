// Computes the results of small calls on integers and booleans in this process,
// when the program reads them. A program often branches on such a value, as in
// `if mask.all():`; computing it here saves a round trip. The worker executes
// the call as well.
//
// This process knows the operands if it uploaded them, or computed them from
// uploads, and integers have the same bits on all machines. If an operand's
// value is unknown, or another thread writes it at the same time, the result is
// unknown as well, and a read asks the worker.
#ifndef CLIENT_LIB_CAPTURE_KERNEL_HOST_CALL_H_
#define CLIENT_LIB_CAPTURE_KERNEL_HOST_CALL_H_

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "client_lib/capture/operators/operator_info.h"
#include "client_lib/session/recording/virtual_device.h"

namespace djinn::capture {

// Describes the value that a call or an upload is about to write. The thread
// that issues the call creates it before the call is recorded, calls Store()
// afterwards, and writes nothing in between. The device and the arguments must
// outlive the HostWrite.
class HostWrite {
 public:
  // Describes a call's value. `info.host_use` must not be kNone; `result` is
  // the tensor that the call creates or overwrites. Returns nullopt if an
  // operand's value is unknown or a tensor is too large.
  static std::optional<HostWrite> OfCall(const OperatorInfo& info,
                                         c10::ArrayRef<c10::IValue> arguments,
                                         const at::Tensor& result,
                                         VirtualDevice* device);
  // Describes an upload of `bytes`, which cover the whole storage of
  // `destination`.
  static std::optional<HostWrite> OfUpload(const at::Tensor& bytes,
                                           const at::Tensor& destination,
                                           VirtualDevice* device);

  void Store() && {
    device_.KeepHostValue(written_, operands_, std::move(value_), readable_);
  }

 private:
  HostWrite(const at::Tensor& written, bool creates, VirtualDevice* device);

  VirtualDevice& device_;
  StorageAt written_;
  std::vector<StorageAt> operands_;
  HostValuePtr value_;
  // True if reads may use the value. False for uploads, because a program that
  // reads an upload checks whether the worker received it.
  bool readable_ = false;
};

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_KERNEL_HOST_CALL_H_
