// What small calls on whole numbers and truth values make, as far as this
// process can tell: it has the operands, and can carry out the same call when
// somebody reads the result. A program reads such values, as `if mask.all():`
// does, and goes on by the answer: it is here without a round trip
// (HostValues). Whole numbers have the same bits wherever they are computed.
// The worker carries out everything as ever.
//
// Nothing depends on it: where an operand is not known, neither is the result.
// What was written meanwhile by another thread makes both unknown.
#ifndef CLIENT_LIB_CAPTURE_HOST_CALL_H_
#define CLIENT_LIB_CAPTURE_HOST_CALL_H_

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "client_lib/capture/operator_info.h"
#include "client_lib/session/recording/virtual_device.h"

namespace djinn::capture {

// What one call or upload is about to write: found before it is recorded, kept
// afterwards, by the thread that makes it, which writes nothing in between. The
// device and the arguments outlive it.
class HostWrite {
 public:
  // `info.host_use` is not kNone; `result`: what the call makes, or overwrites.
  // Nothing where an operand is not known, or something is too large.
  static std::optional<HostWrite> OfCall(const OperatorInfo& info,
                                         c10::ArrayRef<c10::IValue> arguments,
                                         const at::Tensor& result,
                                         VirtualDevice* device);
  // `bytes` become all of the storage of `destination`.
  static std::optional<HostWrite> OfUpload(const at::Tensor& bytes,
                                           const at::Tensor& destination,
                                           VirtualDevice* device);

  void Keep() && {
    device_.KeepHostValue(written_, operands_, std::move(value_), readable_);
  }

 private:
  HostWrite(const at::Tensor& written, bool is_birth, VirtualDevice* device);

  VirtualDevice& device_;
  StorageAt written_;
  std::vector<StorageAt> operands_;
  HostValuePtr value_;
  // Of a result. A program that reads an upload sees that the worker has it.
  bool readable_ = false;
};

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_HOST_CALL_H_
