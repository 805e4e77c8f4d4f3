// What a session does once through, as its structures say: operations and bytes
// by class of operators and phase.
#ifndef SCHEDULER_PLACEMENT_WORK_H_
#define SCHEDULER_PLACEMENT_WORK_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/srg/structure.h"
#include "scheduler/semantics/meaning.h"
#include "scheduler/semantics/operators.h"
#include "scheduler/semantics/roofline.h"

namespace djinn::scheduler {

// "llm_decode"; "unknown" for what is unspecified.
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
  // One run of the structure that the meaning is about.
  Work(const srg::Structure& structure, const semantics::Meaning& meaning);

  void Add(const Part& part);
  void Add(const Work& other);

  bool empty() const { return parts_.empty(); }
  // One for each class and phase: 160 at most.
  const std::vector<Part>& parts() const { return parts_; }
  // Of most of the work whose phase is known; unspecified without any, and
  // where there is nothing that only models do: what a program does between a
  // model's steps has the phase of what it was found beside first, and may be
  // beside another one the next time.
  semantics::Phase phase() const;
  // Of one structure: the slots that are caches of keys and values, ascending.
  // A sum of several has none.
  const std::vector<uint32_t>& cache_slots() const { return cache_slots_; }
  void SetCacheSlots(std::vector<uint32_t> slots) {
    cache_slots_ = std::move(slots);
  }

 private:
  std::vector<Part> parts_;
  std::vector<uint32_t> cache_slots_;
};

// What a device can do is known. Without that nothing takes time on it.
bool IsKnown(const semantics::DeviceSpeed& speed);

// Time at best, by the roofline; 0 when the speed is not known.
double RooflineSeconds(const Work::Part& part,
                       const semantics::DeviceSpeed& speed);
double RooflineSeconds(const Work& work, const semantics::DeviceSpeed& speed);

// The same with what was learnt of such operators on devices of this kind.
double PredictSeconds(const Work& work, const semantics::DeviceSpeed& speed,
                      absl::string_view device,
                      const semantics::CostFactors& factors);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_WORK_H_
