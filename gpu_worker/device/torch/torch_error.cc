#include "gpu_worker/device/torch/torch_error.h"

#include <exception>
#include <new>

#include "absl/strings/match.h"
#include "c10/util/Exception.h"
#include "common/base/error.h"

namespace djinn::worker {
namespace {

absl::Status OutOfMemory(absl::string_view message) {
  return MakeError(absl::StatusCode::kResourceExhausted, "OUT_OF_MEMORY",
                   message);
}

}  // namespace

absl::Status StatusOfCurrentException(absl::string_view reason) {
  try {
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    // After what was asked for, PyTorch's text names the memory of the device
    // and of its processes, which is all tenants'.
    const absl::string_view message = error.what_without_backtrace();
    return OutOfMemory(message.substr(0, message.find(" GPU ")));
  } catch (const c10::LinAlgError& error) {
    return MakeError(absl::StatusCode::kInvalidArgument, "LINALG_FAILED",
                     error.what_without_backtrace());
  } catch (const c10::Error& error) {
    const absl::string_view message = error.what_without_backtrace();
    // The default allocator throws no exception type of its own, so its text
    // decides.
    if (absl::StrContains(message, "can't allocate memory")) {
      return OutOfMemory(message);
    }
    const bool internal = absl::StrContains(message, "INTERNAL ASSERT FAILED");
    return MakeError(internal ? absl::StatusCode::kInternal
                              : absl::StatusCode::kInvalidArgument,
                     reason, message);
  } catch (const std::bad_alloc& error) {
    return OutOfMemory(error.what());
  } catch (const std::exception& error) {
    return MakeError(absl::StatusCode::kInvalidArgument, reason, error.what());
  } catch (...) {
    return MakeError(absl::StatusCode::kInternal, reason, "unknown exception");
  }
}

}  // namespace djinn::worker
