// Values on their way between this program and a remote device, for programs
// that do something else meanwhile.
#ifndef CLIENT_LIB_INCLUDE_DJINN_TRANSFERS_H_
#define CLIENT_LIB_INCLUDE_DJINN_TRANSFERS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "djinn/api.h"

namespace djinn {

// A tensor's value on its way to the CPU. Copies are the same value; when the
// last one goes, it is given up. Thread-safe.
class DJINN_API PendingTensor {
 public:
  // Whether Wait() returns at once.
  bool Ready() const;

  // A contiguous CPU tensor, the same one every time. The root error when an
  // operator that it depends on has failed; DeadlineExceeded (VALUE_PENDING)
  // when it is not here by then, and may be waited for again. Never waits
  // longer than ConnectOptions::operation_timeout without anything moving.
  absl::StatusOr<at::Tensor> Wait(
      absl::Duration timeout = absl::InfiniteDuration()) const;

  // Calls `callback` once the value or an error is here: at once if it is,
  // otherwise on a thread that other replies wait for. It must return soon, not
  // throw, and use no device; better hand on to a thread of the program's own.
  void OnReady(std::function<void()> callback) const;

 private:
  struct State;
  friend DJINN_API absl::StatusOr<PendingTensor> ReadAsync(const at::Tensor&);
  explicit PendingTensor(std::shared_ptr<State> state)
      : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

// Asks for the tensor's value as it is now: what is written to the tensor after
// the call does not change it. InvalidArgument (NOT_REMOTE) for a tensor of
// another device.
DJINN_API absl::StatusOr<PendingTensor> ReadAsync(const at::Tensor& tensor);

// Calls `progress` in the uploading thread while a tensor of `min_bytes` or
// more moves to a worker: about a hundred times, then with done_bytes equal to
// total_bytes when the worker has it. It must not throw nor use a device. Null:
// no more calls. For the process; holds from the next upload on.
using UploadCallback =
    std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;
DJINN_API void SetUploadProgress(UploadCallback progress,
                                 uint64_t min_bytes = uint64_t{16} << 20);

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_TRANSFERS_H_
