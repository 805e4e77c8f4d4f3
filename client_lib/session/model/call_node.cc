#include "client_lib/session/model/call_node.h"

namespace djinn {

srg::Node NodeOf(const Call& call) {
  std::vector<uint32_t> slots;
  std::vector<uint8_t> accesses;
  for (const Touch& touch : call.touches()) {
    slots.push_back(static_cast<uint32_t>(slots.size()));
    accesses.push_back(touch.access);
  }
  HoleCounters counters;
  return DecodeCall(call.bytes(), slots, accesses, &counters);
}

}  // namespace djinn
