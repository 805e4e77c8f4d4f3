#include "scheduler/placement/phase_weights.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace djinn::scheduler {
namespace {

uint64_t Scaled(uint64_t value, double weight) {
  return static_cast<uint64_t>(
      std::llround(static_cast<double>(value) * weight));
}

}  // namespace

Work WeighByTime(const Work& work, const PhaseSeconds& measured,
                 const semantics::DeviceSpeed& speed, absl::string_view device,
                 const semantics::CostFactors& factors) {
  PhaseSeconds once = {};
  for (const Work::Part& part : work.parts()) {
    once[static_cast<size_t>(part.phase)] +=
        RooflineSeconds(part, speed) *
        factors.Factor(part.op_class, part.phase, device);
  }
  // Number of runs of each phase; `work` holds one run of each.
  PhaseSeconds weights;
  weights.fill(1);
  double all_once = 0, all = 0;
  for (size_t phase = 0; phase < once.size(); ++phase) {
    if (phase > 0 && once[phase] > 0) {
      weights[phase] = std::max(1.0, measured[phase] / once[phase]);
    }
    all_once += once[phase];
    all += once[phase] * weights[phase];
  }
  if (all <= all_once) return work;
  Work weighed;
  for (const Work::Part& part : work.parts()) {
    const double weight =
        weights[static_cast<size_t>(part.phase)] * all_once / all;
    Work::Part scaled = part;
    scaled.cost.flops = Scaled(part.cost.flops, weight);
    scaled.cost.read_bytes = Scaled(part.cost.read_bytes, weight);
    scaled.cost.written_bytes = Scaled(part.cost.written_bytes, weight);
    scaled.calls = Scaled(part.calls, weight);
    weighed.Add(scaled);
  }
  return weighed;
}

}  // namespace djinn::scheduler
