// Keeps pathological shape inference from slowing a program down for ever: an
// operator whose results' shapes take too long to find, or are not found, time
// after time, is given up: the worker is asked instead.
//
// Thread-safe. Knows no PyTorch.
#ifndef CLIENT_LIB_CAPTURE_INFERENCE_SHAPE_BREAKER_H_
#define CLIENT_LIB_CAPTURE_INFERENCE_SHAPE_BREAKER_H_

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"

namespace djinn::capture {

class ShapeBreaker {
 public:
  // The process' own.
  static ShapeBreaker& Global();

  // `clock` must outlive this.
  ShapeBreaker(Clock* clock, absl::Duration limit, int max_failures)
      : clock_(clock), limit_(limit), max_failures_(max_failures) {}

  // Every operator begins anew.
  void SetLimits(absl::Duration limit, int max_failures);

  // Whether the operator is given up.
  bool IsOpen(uint32_t operator_id) const;

  // Runs `infer`, which says whether it found the shapes, and counts. What
  // took longer than the limit is a failure, though not an empty-handed one.
  // What `infer` throws passes through, and is the program's mistake.
  void Try(uint32_t operator_id, absl::string_view name,
           absl::FunctionRef<bool()> infer);

 private:
  Clock* const clock_;
  mutable Mutex mu_;
  absl::Duration limit_ ABSL_GUARDED_BY(mu_);
  int max_failures_ ABSL_GUARDED_BY(mu_);
  // Failures in succession, of operators whose last attempt was one.
  absl::flat_hash_map<uint32_t, int> failures_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_INFERENCE_SHAPE_BREAKER_H_
