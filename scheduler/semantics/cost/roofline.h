// Predicts how long work takes on a device: the longer of the times for
// computing and for moving bytes, times factors learned from measurements.
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

// The peak performance of a device.
struct DeviceSpeed {
  double flops_per_second = 0;
  double bytes_per_second = 0;
  // Fixed cost of every call.
  double seconds_per_call = 0;
};

// Returns the predicted time in seconds. Both rates must be positive.
double RooflineSeconds(const Cost& cost, const DeviceSpeed& speed);

// Learns how much longer than its roofline each class of operators takes in
// each phase on each kind of device. Keeps kMaxDevices kinds and drops the one
// updated least recently. Not thread-safe.
class CostFactors {
 public:
  static constexpr size_t kMaxDevices = 64;
  // Bounds every factor from above, and its inverse from below. A factor beyond
  // it means that the device reports wrong peak rates.
  static constexpr double kMaxFactor = 1e6;
  // Logarithms of the factors, so that twice and half as long weigh the same.
  using Logarithms = absl::btree_map<std::pair<OpClass, Phase>, double>;

  // `weight` is the weight of one measurement against all earlier ones.
  explicit CostFactors(double weight = 0.2) : weight_(weight) {}

  // Learns from one measurement. `predicted` is RooflineSeconds(). Ignores
  // values that are not positive. A single measurement changes a factor by at
  // most 10 times.
  void Learn(OpClass op_class, Phase phase, absl::string_view device,
             double predicted, double measured);

  // Returns the learned factor. Without measurements, returns the factor of the
  // class in other phases, or 1.
  double Factor(OpClass op_class, Phase phase, absl::string_view device) const;

  // Calls `visit` with the learned logarithms of each kind of device, in the
  // order of their names.
  void ForEach(absl::FunctionRef<void(absl::string_view device,
                                      const Logarithms& learned)>
                   visit) const;
  // Restores saved logarithms for a kind of device about which nothing was
  // learned since. Returns false, without effect, when Learn() cannot have
  // produced them.
  bool Restore(absl::string_view device, Logarithms learned);

 private:
  struct Device {
    // Order of the latest updates; the greatest was updated last.
    uint64_t ordinal = 0;
    Logarithms logarithms;
  };

  // Returns the kind's entry and marks it as updated last.
  Device* Use(absl::string_view device);

  double weight_;
  uint64_t last_ordinal_ = 0;
  absl::btree_map<std::string, Device> devices_;
};

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_COST_ROOFLINE_H_
