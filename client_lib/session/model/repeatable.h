// Operators that may be executed again on another worker in place of
// fetching what they made, and what that costs.
#ifndef CLIENT_LIB_SESSION_MODEL_REPEATABLE_H_
#define CLIENT_LIB_SESSION_MODEL_REPEATABLE_H_

#include <cstdint>

#include "client_lib/session/model/call.h"
#include "djinn/v1/placement.pb.h"

namespace djinn {

// Whether the operator's results follow from its operands alone, bit for bit,
// on every worker with the same numerics (WorkerHello): each element is
// computed by itself, or sums are taken in an order that follows from sizes. A
// list of those that were looked at; all others are not. Thread-safe.
bool IsRepeatable(uint32_t operator_id);

// How long the call takes a device at best: docs/scheduling.md has the formula.
// The call's operator is repeatable or cheap (rematerialization.h), its results
// are known.
double SecondsOf(const Call& call, const v1::DeviceSpeed& speed);

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MODEL_REPEATABLE_H_
