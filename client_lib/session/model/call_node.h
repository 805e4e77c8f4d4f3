// Examines a recorded call by itself, outside a segment.
#ifndef CLIENT_LIB_SESSION_MODEL_CALL_NODE_H_
#define CLIENT_LIB_SESSION_MODEL_CALL_NODE_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "client_lib/session/model/call.h"
#include "client_lib/session/model/operator_table.h"
#include "common/srg/graph.h"

namespace djinn {

// Returns the call as a node whose slots are the call's touches, in order.
srg::Node NodeOf(const Call& call);

// Returns what `Holds` returns for the operator's name. Each thread caches the
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

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MODEL_CALL_NODE_H_
