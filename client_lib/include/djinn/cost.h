// What a piece of a program's work costs, as its workers measure it and its
// tenant is billed:
//
//   djinn::CostScope scope;
//   for (...) model(input).cpu();
//   const djinn::Cost cost = *scope.Get();
//
// A scope is two questions of a few bytes to each worker that the session uses,
// and changes nothing else. Scopes may overlap; costs of scopes that follow
// each other add up to what their calls are billed, however they are cut.
#ifndef CLIENT_LIB_INCLUDE_DJINN_COST_H_
#define CLIENT_LIB_INCLUDE_DJINN_COST_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "djinn/api.h"

namespace djinn {

struct Cost {
  // Of all devices together.
  absl::Duration device_time;
  // Messages and values, from this process to the workers and back.
  uint64_t bytes_up = 0;
  uint64_t bytes_down = 0;
  // Pieces of the program that the workers carried out.
  uint64_t runs = 0;
};

// Of everything that this process calls while the scope is open, on all virtual
// devices and in all threads. Thread-safe.
class DJINN_API CostScope {
 public:
  // Opens it: calls made before do not count. Sends what was called so far;
  // waits only where a device has no worker yet, or is on its way to another.
  CostScope();
  ~CostScope();
  CostScope(const CostScope&) = delete;
  CostScope& operator=(const CostScope&) = delete;

  // Closes it: calls made later do not count. Waits for no result; once closed,
  // does nothing.
  void Close();

  // Closes it, and waits until the workers have carried out what was called in
  // it. Errors: FailedPrecondition (SESSION_CLOSED) when the session that was
  // open has ended; a device's failure.
  absl::StatusOr<Cost> Get();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_COST_H_
