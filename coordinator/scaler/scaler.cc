#include "coordinator/scaler/scaler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "scheduler/placement/work.h"

namespace djinn::coordinator {
namespace {

constexpr char kPhase[] = "phase";
constexpr char kUtilisation[] = "targetUtilisation";
// Smaller values are a remainder of old work in the average.
constexpr double kNoDemand = 1e-3;

absl::Status Bad(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, "BAD_SCALED_OBJECT",
                   what);
}

absl::StatusOr<size_t> PhaseNamed(absl::string_view name) {
  for (size_t phase = 0; phase < semantics::kPhaseCount; ++phase) {
    if (name == scheduler::PhaseName(static_cast<semantics::Phase>(phase))) {
      return phase;
    }
  }
  return Bad(absl::StrCat(kPhase, ": there is no phase \"", name, "\""));
}

}  // namespace

absl::StatusOr<Scaler::Wish> Scaler::Read(
    const externalscaler::ScaledObjectRef& object) const {
  Wish wish;
  wish.utilisation = target_utilisation_;
  wish.metric_name = "djinn-demand-devices";
  const auto& metadata = object.scalermetadata();
  if (const auto found = metadata.find(kPhase); found != metadata.end()) {
    DJINN_ASSIGN_OR_RETURN(wish.phase, PhaseNamed(found->second));
    absl::StrAppend(&wish.metric_name, "-",
                    absl::StrReplaceAll(found->second, {{"_", "-"}}));
  }
  if (const auto found = metadata.find(kUtilisation); found != metadata.end()) {
    if (!absl::SimpleAtod(found->second, &wish.utilisation) ||
        !(wish.utilisation > 0 && wish.utilisation <= 1)) {
      return Bad(absl::StrCat(kUtilisation,
                              ": expected a number above 0, at most 1, got \"",
                              found->second, "\""));
    }
  }
  return wish;
}

absl::StatusOr<double> Scaler::Devices(const Wish& wish) const {
  DJINN_ASSIGN_OR_RETURN(const ClusterDemand demand, demand_());
  const double devices =
      wish.phase.has_value()
          ? demand.devices[*wish.phase]
          : std::accumulate(demand.devices.begin(), demand.devices.end(), 0.0);
  const int kept = wish.phase.has_value() ? demand.kept_workers[*wish.phase]
                                          : demand.all_kept_workers;
  // Returns at least the demand that makes this number of workers the target.
  return std::max(devices, kept * wish.utilisation);
}

absl::StatusOr<bool> Scaler::IsActive(
    const externalscaler::ScaledObjectRef& object) const {
  DJINN_ASSIGN_OR_RETURN(const Wish wish, Read(object));
  DJINN_ASSIGN_OR_RETURN(const double devices, Devices(wish));
  return devices > kNoDemand;
}

absl::StatusOr<externalscaler::GetMetricSpecResponse> Scaler::Spec(
    const externalscaler::ScaledObjectRef& object) const {
  DJINN_ASSIGN_OR_RETURN(const Wish wish, Read(object));
  externalscaler::GetMetricSpecResponse response;
  externalscaler::MetricSpec* const spec = response.add_metricspecs();
  spec->set_metricname(wish.metric_name);
  spec->set_targetsizefloat(wish.utilisation);
  spec->set_targetsize(static_cast<int64_t>(std::ceil(wish.utilisation)));
  return response;
}

absl::StatusOr<externalscaler::GetMetricsResponse> Scaler::Metrics(
    const externalscaler::GetMetricsRequest& request) const {
  DJINN_ASSIGN_OR_RETURN(const Wish wish, Read(request.scaledobjectref()));
  if (request.metricname() != wish.metric_name) {
    return MakeError(absl::StatusCode::kInvalidArgument, "METRIC_UNKNOWN",
                     absl::StrCat("there is no metric \"", request.metricname(),
                                  "\": expected ", wish.metric_name));
  }
  DJINN_ASSIGN_OR_RETURN(const double devices, Devices(wish));
  externalscaler::GetMetricsResponse response;
  externalscaler::MetricValue* const value = response.add_metricvalues();
  value->set_metricname(wish.metric_name);
  value->set_metricvaluefloat(devices);
  value->set_metricvalue(static_cast<int64_t>(std::ceil(devices)));
  return response;
}

}  // namespace djinn::coordinator
