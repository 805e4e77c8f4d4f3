#include "scheduler/semantics/cost/roofline.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace djinn::semantics {

double RooflineSeconds(const Cost& cost, const DeviceSpeed& speed) {
  const double computing =
      static_cast<double>(cost.flops) / speed.flops_per_second;
  const double moving =
      static_cast<double>(cost.bytes()) / speed.bytes_per_second;
  return std::max(computing, moving) + speed.seconds_per_call;
}

CostFactors::Device* CostFactors::Use(absl::string_view device) {
  Device* const used = &devices_[device];
  used->ordinal = ++last_ordinal_;
  if (devices_.size() <= kMaxDevices) return used;
  devices_.erase(std::min_element(devices_.begin(), devices_.end(),
                                  [](const auto& a, const auto& b) {
                                    return a.second.ordinal < b.second.ordinal;
                                  }));
  return &devices_.find(device)->second;
}

void CostFactors::Learn(OpClass op_class, Phase phase, absl::string_view device,
                        double predicted, double measured) {
  if (!(predicted > 0) || !(measured > 0) || !std::isfinite(measured)) return;
  const double limit = std::log(10.0);
  const double greatest = std::log(kMaxFactor);
  const double seen =
      std::clamp(std::log(measured / predicted), -greatest, greatest);
  const auto [it, first] =
      Use(device)->logarithms.try_emplace({op_class, phase}, 0.0);
  if (first) {
    it->second = std::clamp(seen, -limit, limit);
  } else {
    it->second += std::clamp(weight_ * (seen - it->second), -limit, limit);
  }
}

double CostFactors::Factor(OpClass op_class, Phase phase,
                           absl::string_view device) const {
  const auto learned = devices_.find(device);
  if (learned == devices_.end()) return 1;
  const Logarithms& logarithms = learned->second.logarithms;
  const auto found = logarithms.find({op_class, phase});
  if (found != logarithms.end()) return std::exp(found->second);
  double sum = 0;
  int count = 0;
  for (auto it = logarithms.lower_bound({op_class, Phase{}});
       it != logarithms.end() && it->first.first == op_class; ++it) {
    sum += it->second;
    ++count;
  }
  return count == 0 ? 1 : std::exp(sum / count);
}

void CostFactors::ForEach(
    absl::FunctionRef<void(absl::string_view, const Logarithms&)> visit) const {
  for (const auto& [name, device] : devices_) visit(name, device.logarithms);
}

bool CostFactors::Restore(absl::string_view device, Logarithms learned) {
  const double greatest = std::log(kMaxFactor);
  for (const auto& [key, logarithm] : learned) {
    // The negated comparison also rejects NaN.
    if (!(std::abs(logarithm) <= greatest)) return false;
  }
  Use(device)->logarithms = std::move(learned);
  return true;
}

}  // namespace djinn::semantics
