#include "scheduler/placement/work.h"

#include <algorithm>
#include <array>

#include "scheduler/semantics/patterns/frame.h"

namespace djinn::scheduler {
namespace {

// The device by which phases are weighed against each other when no device is
// given.
constexpr semantics::DeviceSpeed kReference = {1e13, 1e12, 0};

bool IsOfModels(semantics::OpClass op_class) {
  using semantics::OpClass;
  switch (op_class) {
    case OpClass::kMatmul:
    case OpClass::kConvolution:
    case OpClass::kAttention:
    case OpClass::kRecurrent:
    case OpClass::kLoss:
    case OpClass::kOptimizer:
    case OpClass::kBackward:
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::string_view PhaseName(semantics::Phase phase) {
  static constexpr const char* kNames[semantics::kPhaseCount] = {
      "unknown",         "forward",         "llm_prefill",       "llm_decode",
      "vision_encoding", "vision_decoding", "multimodal_fusion", "training"};
  return kNames[static_cast<int>(phase)];
}

Work::Work(const srg::Graph& graph, const semantics::Meaning& meaning) {
  const semantics::Frame frame(graph);
  for (int node = 0; node < frame.node_count(); ++node) {
    const semantics::NodeMeaning& found = meaning.nodes[node];
    Add(Part{frame.op_class(node), found.phase, found.cost, 1});
  }
  for (size_t slot = 0; slot < meaning.slots.size(); ++slot) {
    if (meaning.slots[slot].residency ==
        semantics::Residency::kStatefulKvCache) {
      cache_slots_.push_back(static_cast<uint32_t>(slot));
    }
  }
}

void Work::Add(const Part& part) {
  for (Part& have : parts_) {
    if (have.op_class != part.op_class || have.phase != part.phase) continue;
    have.cost += part.cost;
    have.calls += part.calls;
    return;
  }
  parts_.push_back(part);
}

void Work::Add(const Work& other) {
  for (const Part& part : other.parts_) Add(part);
}

semantics::Phase Work::phase() const {
  std::array<double, semantics::kPhaseCount> seconds = {};
  bool of_model = false;
  for (const Part& part : parts_) {
    of_model = of_model || IsOfModels(part.op_class);
    seconds[static_cast<size_t>(part.phase)] +=
        RooflineSeconds(part, kReference);
  }
  // The known part of the work decides for all of it.
  const auto most = std::max_element(seconds.begin() + 1, seconds.end());
  return of_model && *most > 0
             ? static_cast<semantics::Phase>(most - seconds.begin())
             : semantics::Phase::kUnspecified;
}

bool IsKnown(const semantics::DeviceSpeed& speed) {
  return speed.flops_per_second > 0 && speed.bytes_per_second > 0;
}

double RooflineSeconds(const Work::Part& part,
                       const semantics::DeviceSpeed& speed) {
  if (!IsKnown(speed)) return 0;
  const double calls = static_cast<double>(part.calls);
  return semantics::RooflineSeconds(
             part.cost, {speed.flops_per_second, speed.bytes_per_second, 0}) +
         calls * speed.seconds_per_call;
}

double RooflineSeconds(const Work& work, const semantics::DeviceSpeed& speed) {
  double seconds = 0;
  for (const Work::Part& part : work.parts()) {
    seconds += RooflineSeconds(part, speed);
  }
  return seconds;
}

double PredictSeconds(const Work& work, const semantics::DeviceSpeed& speed,
                      absl::string_view device,
                      const semantics::CostFactors& factors) {
  double seconds = 0;
  for (const Work::Part& part : work.parts()) {
    seconds += RooflineSeconds(part, speed) *
               factors.Factor(part.op_class, part.phase, device);
  }
  return seconds;
}

}  // namespace djinn::scheduler
