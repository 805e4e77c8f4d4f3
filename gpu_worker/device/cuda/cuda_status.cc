#include "gpu_worker/device/cuda/cuda_status.h"

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace djinn::worker {

bool IsFatal(cudaError_t error) {
  switch (error) {
    case cudaErrorAssert:
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorDevicesUnavailable:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

absl::Status StatusOfCuda(cudaError_t error, absl::string_view device) {
  if (error == cudaSuccess) return absl::OkStatus();
  const char* const text = cudaGetErrorString(error);
  if (IsFatal(error)) {
    return MakeError(
        absl::StatusCode::kUnavailable, kDeviceBroken,
        absl::StrCat(device,
                     " cannot be used any more by this worker: ", text));
  }
  if (error == cudaErrorMemoryAllocation) {
    return MakeError(absl::StatusCode::kResourceExhausted, "OUT_OF_MEMORY",
                     absl::StrCat(device, ": ", text));
  }
  return MakeError(absl::StatusCode::kInternal, "DEVICE_FAILED",
                   absl::StrCat(device, ": ", text));
}

}  // namespace djinn::worker
