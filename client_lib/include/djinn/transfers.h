// Transfers values between this program and a remote device in the background,
// so that the program can continue meanwhile:
//
//   absl::StatusOr<djinn::PendingTensor> scores = djinn::ReadAsync(remote);
//   Prepare(next);
//   absl::StatusOr<at::Tensor> local = scores->Wait();
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

// A tensor's value on its way to the CPU. Copies share the value. Destroying
// the last copy cancels the read. Thread-safe.
class DJINN_API PendingTensor {
 public:
  // Returns whether Wait() would return at once.
  bool Ready() const;

  // Waits for the value and returns it as a contiguous CPU tensor of the same
  // sizes and dtype. All calls return the same tensor. Returns the root error
  // if an operator on which the value depends has failed, and DeadlineExceeded
  // (VALUE_PENDING) after `timeout`; the caller may then wait again. A wait
  // without any progress ends after ConnectOptions::operation_timeout.
  absl::StatusOr<at::Tensor> Wait(
      absl::Duration timeout = absl::InfiniteDuration()) const;

  // Calls `callback` once, when the value or an error has arrived: at once if
  // it has arrived already, otherwise on a thread that delivers other replies,
  // or on the one that closes the session. The callback must return soon, not
  // throw, and not use a device; it should hand longer work to a thread of the
  // program.
  void OnReady(std::function<void()> callback) const;

 private:
  struct State;
  friend DJINN_API absl::StatusOr<PendingTensor> ReadAsync(const at::Tensor&);
  explicit PendingTensor(std::shared_ptr<State> state)
      : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

// Asks for the value that the tensor has now. Later writes to the tensor do not
// change it. Returns InvalidArgument: NOT_REMOTE for a tensor that is not on a
// remote device, NOT_STRIDED for a sparse or nested one.
DJINN_API absl::StatusOr<PendingTensor> ReadAsync(const at::Tensor& tensor);

// Sets the function that is called while a tensor of at least `min_bytes` is
// uploaded. It is called about a hundred times for each tensor; in the last
// call, when the worker has the tensor, done_bytes equals total_bytes. It runs
// on the uploading thread, and must neither throw nor use a device. A null
// function ends the calls. The setting applies to the whole process, from the
// next upload on.
using UploadCallback =
    std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;
DJINN_API void SetUploadProgress(UploadCallback progress,
                                 uint64_t min_bytes = uint64_t{16} << 20);

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_TRANSFERS_H_
