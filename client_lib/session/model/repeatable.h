// Lists the operators that a worker may execute a second time instead of
// fetching their results, and estimates their cost.
#ifndef CLIENT_LIB_SESSION_MODEL_REPEATABLE_H_
#define CLIENT_LIB_SESSION_MODEL_REPEATABLE_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "client_lib/session/model/call.h"
#include "client_lib/session/model/operator_table.h"
#include "common/srg/graph.h"
#include "djinn/v1/placement.pb.h"

namespace djinn {

// Returns the call as a node whose slots are the call's touches, in order.
srg::Node NodeOf(const Call& call);

// Returns the result of `Holds` for the operator's name. Each thread caches the
// results, because a look-up by name costs more than most calls.
template <bool (*Holds)(absl::string_view name)>
bool HoldsFor(uint32_t operator_id) {
  thread_local std::vector<char> known;
  if (operator_id >= known.size()) known.resize(operator_id + 1, '?');
  char& holds = known[operator_id];
  if (holds == '?') {
    holds = Holds(OperatorTable::Global().Get(operator_id).name) ? 'y' : 'n';
  }
  return holds == 'y';
}

// Returns whether the operator's results depend on its operands alone, bit for
// bit, on all workers with the same numerics (WorkerHello). Such an operator
// computes each element separately, or adds in an order that depends only on
// the sizes. Only reviewed operators are listed. Thread-safe.
bool IsRepeatable(uint32_t operator_id);

// Returns the shortest time, in seconds, that the device needs for the call;
// docs/design/multi-worker.md has the formula. The call's operator must be
// repeatable or cheap (rematerialization.h), and its results must be known.
double SecondsOf(const Call& call, const v1::DeviceSpeed& speed);

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MODEL_REPEATABLE_H_
