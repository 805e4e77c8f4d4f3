// Stops inferring the shapes of an operator's results after several consecutive
// attempts that took too long or failed. New calls of that operator then wait
// for the worker. This keeps pathological shape inference from slowing a
// program down for ever.
//
// Thread-safe. Independent of PyTorch.
#ifndef CLIENT_LIB_CAPTURE_INFERENCE_SHAPE_BREAKER_H_
#define CLIENT_LIB_CAPTURE_INFERENCE_SHAPE_BREAKER_H_

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace djinn::capture {

class ShapeBreaker {
 public:
  // Returns the process's breaker.
  static ShapeBreaker& Global();

  // `clock` must outlive this object.
  ShapeBreaker(Clock* clock, absl::Duration limit, int max_failures)
      : clock_(clock), limit_(limit), max_failures_(max_failures) {}

  // Sets the limits and enables inference for every operator.
  void SetLimits(absl::Duration limit, int max_failures);

  // Returns whether inference was given up for the operator.
  bool IsOpen(uint32_t operator_id) const;

  // Runs `infer`, which returns whether it found the shapes. Counts a failure
  // if it did not find them or took longer than the limit. An exception of
  // `infer` is the program's mistake: it passes through and does not count.
  void Try(uint32_t operator_id, absl::string_view name,
           absl::FunctionRef<bool()> infer);

 private:
  Clock* const clock_;
  mutable Mutex mu_;
  absl::Duration limit_ ABSL_GUARDED_BY(mu_);
  int max_failures_ ABSL_GUARDED_BY(mu_);
  // The number of consecutive failures, for each operator whose last attempt
  // failed.
  absl::flat_hash_map<uint32_t, int> failures_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_INFERENCE_SHAPE_BREAKER_H_
