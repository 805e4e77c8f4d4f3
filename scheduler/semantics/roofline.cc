#include "scheduler/semantics/roofline.h"

#include <algorithm>
#include <cmath>

namespace djinn::semantics {

double RooflineSeconds(const Cost& cost, const DeviceSpeed& speed) {
  const double computing =
      static_cast<double>(cost.flops) / speed.flops_per_second;
  const double moving =
      static_cast<double>(cost.bytes()) / speed.bytes_per_second;
  return std::max(computing, moving) + speed.seconds_per_call;
}

void CostFactors::Learn(OpClass op_class, Phase phase, absl::string_view device,
                        double predicted, double measured) {
  if (!(predicted > 0) || !(measured > 0) || !std::isfinite(measured)) return;
  const double limit = std::log(10.0);
  const double seen = std::log(measured / predicted);
  const auto [it, first] =
      logarithms_.try_emplace({std::string(device), op_class, phase}, 0.0);
  if (first) {
    it->second = std::clamp(seen, -limit, limit);
  } else {
    it->second += std::clamp(weight_ * (seen - it->second), -limit, limit);
  }
}

double CostFactors::Factor(OpClass op_class, Phase phase,
                           absl::string_view device) const {
  const std::string name(device);
  const auto found = logarithms_.find({name, op_class, phase});
  if (found != logarithms_.end()) return std::exp(found->second);
  double sum = 0;
  int count = 0;
  for (auto it = logarithms_.lower_bound({name, op_class, Phase{}});
       it != logarithms_.end() && it->first.device == device &&
       it->first.op_class == op_class;
       ++it) {
    sum += it->second;
    ++count;
  }
  return count == 0 ? 1 : std::exp(sum / count);
}

}  // namespace djinn::semantics
