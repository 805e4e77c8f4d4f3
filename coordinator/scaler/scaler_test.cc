#include "coordinator/scaler/scaler.h"

#include "common/base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

using externalscaler::GetMetricsRequest;
using externalscaler::ScaledObjectRef;
using ::testing::HasSubstr;

constexpr auto kDecode = static_cast<size_t>(semantics::Phase::kLlmDecode);
constexpr auto kTraining = static_cast<size_t>(semantics::Phase::kTraining);

class ScalerTest : public testing::Test {
 protected:
  static ScaledObjectRef Object(const std::string& phase = "",
                                const std::string& utilisation = "") {
    ScaledObjectRef object;
    if (!phase.empty()) (*object.mutable_scalermetadata())["phase"] = phase;
    if (!utilisation.empty()) {
      (*object.mutable_scalermetadata())["targetUtilisation"] = utilisation;
    }
    return object;
  }
  // Requests the metric that the object's specification names.
  double Value(const ScaledObjectRef& object) {
    GetMetricsRequest request;
    *request.mutable_scaledobjectref() = object;
    request.set_metricname(scaler_.Spec(object)->metricspecs(0).metricname());
    const auto response = scaler_.Metrics(request);
    EXPECT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(response->metricvalues(0).metricname(), request.metricname());
    return response->metricvalues(0).metricvaluefloat();
  }

  absl::StatusOr<ClusterDemand> demand_ = ClusterDemand();
  Scaler scaler_{0.7, [this] { return demand_; }};
};

TEST_F(ScalerTest, DemandIsOfOnePhaseOrOfAll) {
  demand_->devices[kDecode] = 2.5;
  demand_->devices[kTraining] = 4;
  EXPECT_DOUBLE_EQ(Value(Object()), 6.5);
  EXPECT_DOUBLE_EQ(Value(Object("llm_decode")), 2.5);
  EXPECT_DOUBLE_EQ(Value(Object("forward")), 0);
  EXPECT_TRUE(*scaler_.IsActive(Object("llm_decode")));
  EXPECT_FALSE(*scaler_.IsActive(Object("forward")));
}

TEST_F(ScalerTest, WorkersThatHoldStateAreKept) {
  demand_->devices[kDecode] = 0.1;
  demand_->kept_workers[kDecode] = 3;
  demand_->all_kept_workers = 4;
  // KEDA divides by the target.
  EXPECT_DOUBLE_EQ(Value(Object("llm_decode")) / 0.7, 3);
  EXPECT_DOUBLE_EQ(Value(Object("llm_decode", "0.5")) / 0.5, 3);
  EXPECT_DOUBLE_EQ(Value(Object()) / 0.7, 4);
  demand_->devices[kDecode] = 0;
  EXPECT_TRUE(*scaler_.IsActive(Object("llm_decode")));
}

TEST_F(ScalerTest, TheSpecificationSaysNameAndTarget) {
  auto spec = scaler_.Spec(Object())->metricspecs(0);
  EXPECT_EQ(spec.metricname(), "djinn-demand-devices");
  EXPECT_DOUBLE_EQ(spec.targetsizefloat(), 0.7);
  EXPECT_EQ(spec.targetsize(), 1);
  spec = scaler_.Spec(Object("llm_decode", "0.25"))->metricspecs(0);
  EXPECT_EQ(spec.metricname(), "djinn-demand-devices-llm-decode");
  EXPECT_DOUBLE_EQ(spec.targetsizefloat(), 0.25);
}

TEST_F(ScalerTest, SaysThatItIsBlindAndNeverZero) {
  demand_ = MakeError(absl::StatusCode::kUnavailable, "DEMAND_UNKNOWN", "dark");
  GetMetricsRequest request;
  request.set_metricname("djinn-demand-devices");
  EXPECT_EQ(ErrorReason(scaler_.Metrics(request).status()), "DEMAND_UNKNOWN");
  EXPECT_EQ(ErrorReason(scaler_.IsActive(Object()).status()), "DEMAND_UNKNOWN");
  // The specification does not depend on the demand.
  EXPECT_TRUE(scaler_.Spec(Object()).ok());
}

TEST_F(ScalerTest, BadMetadataIsNamed) {
  EXPECT_THAT(
      std::string(scaler_.IsActive(Object("decode")).status().message()),
      HasSubstr("phase: there is no phase \"decode\""));
  for (const char* utilisation : {"0", "-1", "1.5", "nan", "much"}) {
    const absl::Status status = scaler_.Spec(Object("", utilisation)).status();
    EXPECT_EQ(ErrorReason(status), "BAD_SCALED_OBJECT") << utilisation;
    EXPECT_THAT(std::string(status.message()), HasSubstr(utilisation));
  }
  GetMetricsRequest request;
  request.set_metricname("djinn-demand-devices-training");
  EXPECT_EQ(ErrorReason(scaler_.Metrics(request).status()), "METRIC_UNKNOWN");
}

}  // namespace
}  // namespace djinn::coordinator
