// Measures what a part of a program costs, with the figures by which workers
// bill the tenant:
//
//   djinn::CostScope scope;
//   for (...) model(input).cpu();
//   absl::StatusOr<djinn::Cost> cost = scope.Get();
//
// A scope covers all calls of this process, on all virtual devices and in all
// threads, between its construction and Close(). A scope sends two requests of
// a few bytes to each worker that the session uses, and has no other effect.
// Scopes may overlap. The costs of consecutive scopes add up to the bill for
// their calls. All functions are thread-safe.
#ifndef CLIENT_LIB_INCLUDE_DJINN_COST_H_
#define CLIENT_LIB_INCLUDE_DJINN_COST_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "djinn/api.h"

namespace djinn {

struct Cost {
  // The time for which devices worked, summed over all devices.
  absl::Duration device_time;
  // The bytes of messages and tensors, from this process to the workers and
  // back.
  uint64_t bytes_up = 0;
  uint64_t bytes_down = 0;
  // The number of runs that the workers executed.
  uint64_t runs = 0;
};

// Measures the cost of the calls between its construction and Close().
class DJINN_API CostScope {
 public:
  // Opens the scope. First sends all earlier calls, so that they do not count.
  // Waits only for a device that has no worker yet or is migrating.
  CostScope();
  ~CostScope();
  CostScope(const CostScope&) = delete;
  CostScope& operator=(const CostScope&) = delete;

  // Closes the scope, so that later calls do not count. Does not wait for
  // results. Has no effect on a closed scope.
  void Close();

  // Closes the scope, waits until the workers have executed its calls, and
  // returns their cost. Errors: FailedPrecondition (SESSION_CLOSED) if the
  // session that was open at the beginning has ended; the failure of a device.
  absl::StatusOr<Cost> Get();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_COST_H_
