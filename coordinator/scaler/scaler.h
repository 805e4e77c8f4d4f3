// Answers KEDA's external scaler: demand in devices, of one phase or of all,
// and how many devices of demand a worker should have.
//
// A ScaledObject's metadata may say
//   phase: llm_decode           all phases together otherwise
//   targetUtilisation: "0.6"    the configuration's otherwise
//
// It answers with Unavailable when the demand is not known: KEDA then leaves
// everything as it is, or does what its fallback says. Workers that hold state
// of sessions are never too many.
//
// Thread-safe.
#ifndef COORDINATOR_SCALER_SCALER_H_
#define COORDINATOR_SCALER_SCALER_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/cluster/placement/demand.h"
#include "keda/externalscaler.pb.h"

namespace djinn::coordinator {

class Scaler {
 public:
  using DemandFunction = std::function<absl::StatusOr<ClusterDemand>()>;

  // Any thread may call `demand`; what it refers to must outlive the scaler.
  Scaler(double target_utilisation, DemandFunction demand)
      : target_utilisation_(target_utilisation), demand_(std::move(demand)) {}

  // All methods return InvalidArgument (BAD_SCALED_OBJECT) for wrong metadata.
  // Methods that read the demand also return its errors.

  // Returns whether there is demand, or state to keep.
  absl::StatusOr<bool> IsActive(
      const externalscaler::ScaledObjectRef& object) const;
  absl::StatusOr<externalscaler::GetMetricSpecResponse> Spec(
      const externalscaler::ScaledObjectRef& object) const;
  // Returns InvalidArgument (METRIC_UNKNOWN) for a metric that Spec() does not
  // name.
  absl::StatusOr<externalscaler::GetMetricsResponse> Metrics(
      const externalscaler::GetMetricsRequest& request) const;

 private:
  // The parsed metadata.
  struct Wish {
    // Absent for all phases.
    std::optional<size_t> phase;
    double utilisation = 0;
    std::string metric_name;
  };
  absl::StatusOr<Wish> Read(
      const externalscaler::ScaledObjectRef& object) const;
  absl::StatusOr<double> Devices(const Wish& wish) const;

  const double target_utilisation_;
  const DemandFunction demand_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_SCALER_SCALER_H_
