// How long work takes on a device: the longer of computing and of moving bytes,
// with factors learnt from what was measured.
#ifndef SCHEDULER_SEMANTICS_ROOFLINE_H_
#define SCHEDULER_SEMANTICS_ROOFLINE_H_

#include <string>

#include "absl/container/btree_map.h"
#include "absl/strings/string_view.h"
#include "scheduler/semantics/meaning.h"

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
// a device. Not thread-safe.
class CostFactors {
 public:
  // Each measurement counts as `weight` against all before it.
  explicit CostFactors(double weight = 0.2) : weight_(weight) {}

  // `predicted` is RooflineSeconds(); both must be positive, others are
  // ignored. A single measurement moves a factor by 10 at most.
  void Learn(OpClass op_class, Phase phase, absl::string_view device,
             double predicted, double measured);

  // 1 where nothing was measured: then the class' in other phases, if known.
  double Factor(OpClass op_class, Phase phase, absl::string_view device) const;

 private:
  struct Key {
    std::string device;
    OpClass op_class;
    Phase phase;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  double weight_;
  // Logarithms: twice and half as long weigh the same.
  absl::btree_map<Key, double> logarithms_;
};

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ROOFLINE_H_
