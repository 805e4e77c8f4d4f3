#include "client_lib/capture/inference/shape_breaker.h"

#include "common/log/log.h"
#include "djinn/debug.h"

namespace djinn::capture {

ShapeBreaker& ShapeBreaker::Global() {
  static ShapeBreaker* const breaker = [] {
    const ShapeInferenceLimits limits;
    return new ShapeBreaker(Clock::Real(), limits.time, limits.failures);
  }();
  return *breaker;
}

void ShapeBreaker::SetLimits(absl::Duration limit, int max_failures) {
  MutexLock lock(&mu_);
  limit_ = limit;
  max_failures_ = max_failures;
  failures_.clear();
}

bool ShapeBreaker::IsOpen(uint32_t operator_id) const {
  MutexLock lock(&mu_);
  const auto found = failures_.find(operator_id);
  return found != failures_.end() && found->second >= max_failures_;
}

void ShapeBreaker::Try(uint32_t operator_id, absl::string_view name,
                       absl::FunctionRef<bool()> infer) {
  const absl::Duration begin = clock_->Monotonic();
  const bool found = infer();
  const absl::Duration took = clock_->Monotonic() - begin;
  int failures = 0;
  {
    MutexLock lock(&mu_);
    if (found && took <= limit_) {
      failures_.erase(operator_id);
      return;
    }
    failures = ++failures_[operator_id];
    if (failures != max_failures_) return;
  }
  log::Warning(
      "shape inference disabled for an operator; each new call of it waits for "
      "the worker",
      {{"op", name}, {"failures", failures}, {"last_took", took}});
}

}  // namespace djinn::capture
