// The work of one pass through a session's graphs: operations and bytes by
// class of operators and phase.
#ifndef SCHEDULER_PLACEMENT_WORK_H_
#define SCHEDULER_PLACEMENT_WORK_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/srg/graph.h"
#include "scheduler/semantics/cost/meaning.h"
#include "scheduler/semantics/cost/roofline.h"
#include "scheduler/semantics/patterns/operators.h"

namespace djinn::scheduler {

// Returns the name of a phase, such as "llm_decode"; "unknown" for unspecified.
absl::string_view PhaseName(semantics::Phase phase);

class Work {
 public:
  struct Part {
    semantics::OpClass op_class = semantics::OpClass::kOther;
    semantics::Phase phase = semantics::Phase::kUnspecified;
    semantics::Cost cost;
    uint64_t calls = 0;
  };

  Work() = default;
  // Creates the work of one run of the graph that `meaning` describes.
  Work(const srg::Graph& graph, const semantics::Meaning& meaning);

  void Add(const Part& part);
  void Add(const Work& other);

  bool empty() const { return parts_.empty(); }
  // Returns one part for each class and phase, at most 160.
  const std::vector<Part>& parts() const { return parts_; }
  // Returns the phase of most of the work whose phase is known. Returns
  // unspecified if no phase is known, and for work without an operator that
  // marks a model. Such work is calls between a model's steps: they got the
  // phase of the step beside which they were found first, and may be beside
  // another step the next time.
  semantics::Phase phase() const;
  // Returns the slots of one graph that are key/value caches, ascending. A
  // sum of several graphs has none.
  const std::vector<uint32_t>& cache_slots() const { return cache_slots_; }
  void SetCacheSlots(std::vector<uint32_t> slots) {
    cache_slots_ = std::move(slots);
  }

 private:
  std::vector<Part> parts_;
  std::vector<uint32_t> cache_slots_;
};

// Returns whether the speed of a device is known. Without it, all predicted
// times are 0.
bool IsKnown(const semantics::DeviceSpeed& speed);

// Returns the least time in seconds, by the roofline; 0 when the speed is
// unknown.
double RooflineSeconds(const Work::Part& part,
                       const semantics::DeviceSpeed& speed);
double RooflineSeconds(const Work& work, const semantics::DeviceSpeed& speed);

// Returns the roofline time corrected by the learned factors of such operators
// on this kind of device.
double PredictSeconds(const Work& work, const semantics::DeviceSpeed& speed,
                      absl::string_view device,
                      const semantics::CostFactors& factors);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_WORK_H_
