#include "scheduler/semantics/patterns/dropout.h"

#include "scheduler/semantics/patterns/walk.h"

namespace djinn::semantics {

std::vector<int> DropoutBehind(const Frame& frame, const Regions& regions,
                               int node) {
  std::vector<int> dropout;
  for (const int consumer : frame.Consumers(node)) {
    if (!regions.IsFree(consumer)) continue;
    if (frame.op_class(consumer) == OpClass::kRandom) {
      dropout.push_back(consumer);
      continue;
    }
    if (frame.op(consumer) != "mul") continue;
    const auto draws = [&](int other) {
      return regions.IsFree(other) && other != node &&
             (frame.op_class(other) == OpClass::kRandom ||
              frame.op(other) == "div_" || frame.op(other) == "empty_like");
    };
    const std::vector<int> mask = Upstream(frame, consumer, draws, 8);
    if (mask.empty()) continue;
    dropout.push_back(consumer);
    dropout.insert(dropout.end(), mask.begin(), mask.end());
  }
  return dropout;
}

}  // namespace djinn::semantics
