// How long work takes on a device: the longer of computing and of moving bytes,
// with factors learned from what was measured.
#ifndef SCHEDULER_SEMANTICS_COST_ROOFLINE_H_
#define SCHEDULER_SEMANTICS_COST_ROOFLINE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "scheduler/semantics/cost/meaning.h"

namespace djinn::semantics {

// What a device can do at best.
struct DeviceSpeed {
  double flops_per_second = 0;
  double bytes_per_second = 0;
  // What every call takes, however small.
  double seconds_per_call = 0;
};

// Both rates must be positive.
double RooflineSeconds(const Cost& cost, const DeviceSpeed& speed);

// How much longer than its roofline each class of operators takes in a phase on
// a kind of device. The kind that was learned of least recently makes room for
// one beyond kMaxDevices. Not thread-safe.
class CostFactors {
 public:
  static constexpr size_t kMaxDevices = 64;
  // No factor is greater, nor less than one by it: that far from the roofline,
  // what a device says of itself is wrong.
  static constexpr double kMaxFactor = 1e6;
  // Twice and half as long weigh the same.
  using Logarithms = absl::btree_map<std::pair<OpClass, Phase>, double>;

  // Each measurement counts as `weight` against all before it.
  explicit CostFactors(double weight = 0.2) : weight_(weight) {}

  // `predicted` is RooflineSeconds(); both must be positive, others are
  // ignored. A single measurement moves a factor by 10 at most.
  void Learn(OpClass op_class, Phase phase, absl::string_view device,
             double predicted, double measured);

  // 1 where nothing was measured: then the class' in other phases, if known.
  double Factor(OpClass op_class, Phase phase, absl::string_view device) const;

  // What was learned of each kind of device, in order of their names.
  void ForEach(absl::FunctionRef<void(absl::string_view device,
                                      const Logarithms& learned)>
                   visit) const;
  // Takes that up for a kind of device of which nothing was learned since;
  // false, without effect, when Learn() cannot have come to it.
  bool Restore(absl::string_view device, Logarithms learned);

 private:
  struct Device {
    // Greater than that of those learned of before.
    uint64_t ordinal = 0;
    Logarithms logarithms;
  };

  // Now learned of.
  Device* Use(absl::string_view device);

  double weight_;
  uint64_t last_ordinal_ = 0;
  absl::btree_map<std::string, Device> devices_;
};

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_COST_ROOFLINE_H_
